#include "palimpsest/evict/auto.h"
#include "palimpsest/evict/method_plan.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/error_of.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

PlanTarget small_target(int trained_context = 0) {
  PlanTarget out;
  out.shape.geometry = HeadGeometry::uniform(4, 2, 64, 64, CacheType::kF16, 4);
  out.shape.page_size = 16;
  out.positions = PositionKind::kRotary;
  out.trained_context = trained_context;
  return out;
}

constexpr std::size_t kTokenBytes = std::size_t{4} * 2 * (64 + 64) * 2;  // keys and values

int tokens_of(const std::string& method, const PlanTarget& of) {
  const Method m = resolve(parse_method(method), of);
  EXPECT_EQ(MethodPlan(parse_method(method), of).method(), m);
  return m.budget;
}

// The largest budget: one token more takes more bytes.
TEST(Resolve, BytesAreAnUpperBound) {
  for (const char* preset : {"streaming", "h2o", "keydiff", "snapkv", "ems", "adakv", "pyramidkv", "paged-eviction",
                             "lazy", "lagkv", "expected-attention", "streaming:mechanism=append", "h2o:pin=100-149"}) {
    SCOPED_TRACE(preset);
    const std::string method = preset, with = method.find(':') == std::string::npos ? ":" : ",";
    const int budget = tokens_of(method + with + "budget=4MiB", small_target());
    EXPECT_GT(budget, 64);
    const auto bytes = [&](int tokens) {
      return cache_bytes(MethodPlan(parse_method(method + with + "budget=" + std::to_string(tokens)), small_target()));
    };
    EXPECT_LE(bytes(budget), std::size_t{4} << 20);
    EXPECT_GT(bytes(budget + 1), std::size_t{4} << 20);
    if (method == "streaming") {
      EXPECT_LE(static_cast<std::size_t>(budget) * kTokenBytes, std::size_t{4} << 20);
      EXPECT_GE(static_cast<std::size_t>(budget + 64) * kTokenBytes, std::size_t{4} << 20);
    }
  }
}

TEST(Resolve, BytesAsText) {
  const auto budget_of = [](const std::string& text) {
    return get_option(parse_method("h2o:budget=" + text), "budget");
  };
  EXPECT_EQ(budget_of("256MiB"), "256MiB");
  EXPECT_EQ(budget_of("1.5GiB"), "1536MiB");
  EXPECT_EQ(budget_of("2GiB"), "2GiB");
  EXPECT_EQ(budget_of("1000B"), "1000B");
  EXPECT_EQ(budget_of("auto"), "auto");
  const Method m = parse_method("h2o:budget=256MiB");
  EXPECT_EQ(parse_method(spell_out(m)), m);
  EXPECT_EQ(spell_short(m), "h2o:budget=256MiB");
  EXPECT_EQ(parse_method("h2o:budget=256MiB,budget=256"), parse_method("h2o"));
  for (const char* bad : {"256MB", "MiB", "-1MiB", "0MiB", "1e30GiB"})
    EXPECT_NE(
        error_of([&] { parse_method(std::string("h2o:budget=") + bad); }).find("is no size: use B, KiB, MiB or GiB"),
        std::string::npos)
        << bad;
}

TEST(Resolve, TooFewBytes) {
  const std::string message = error_of([] { resolve(parse_method("streaming:budget=1KiB"), small_target()); });
  EXPECT_NE(message.find("budget 1KiB: the smallest cache of this method takes "), std::string::npos) << message;
  const std::string pinned = error_of([] { MethodPlan(parse_method("h2o:budget=1MiB,pin=9-4999"), small_target()); });
  EXPECT_NE(pinned.find("protect fewer tokens"), std::string::npos) << pinned;
  EXPECT_EQ(
      error_of([] { MethodPlan(parse_method("h2o:budget=1MiB,split=nosuch.txt"), small_target()); }).find("bytes"),
      std::string::npos);  // another fault
}

// Ranks of keys stay in the trained context, also while a prompt is read.
TEST(Resolve, MethodAuto) {
  PlanTarget of = small_target(4096);
  const Method whole = resolve(parse_method("auto"), of);
  EXPECT_EQ(whole.name, "auto");
  EXPECT_GT(whole.budget, 4096 - 2 * 512);
  EXPECT_LE(MethodPlan(whole, of).occupancies(100000, -1).prefill.front().tokens, 4096);
  Method more = whole;
  ++more.budget, ++more.prompt_max;
  EXPECT_GT(MethodPlan(more, of).occupancies(100000, -1).prefill.front().tokens, 4096);
  EXPECT_EQ(resolve(whole, of), whole);

  of.memory = std::size_t{4} << 20;
  const Method small = resolve(parse_method("auto"), of);
  EXPECT_LT(small.budget, 2048);
  EXPECT_LE(MethodPlan(small, of).bytes(100000, -1).total(), of.memory);
  EXPECT_EQ(tokens_of("auto:budget=100", of), 100);
  EXPECT_TRUE(pins_system_prompt(small, static_cast<std::size_t>(small.budget) / 4));
  EXPECT_FALSE(pins_system_prompt(small, static_cast<std::size_t>(small.budget) / 4 + 1));
  EXPECT_FALSE(pins_system_prompt(parse_method("h2o"), 1));
  EXPECT_TRUE(pins_system_prompt(parse_method("h2o:budget=400"), 100, true));
  EXPECT_FALSE(pins_system_prompt(parse_method("h2o:budget=400"), 101, true));
  EXPECT_FALSE(pins_system_prompt(parse_method("h2o:budget=400,split=pyramid"), 1, true)) << "heads may have less";
  EXPECT_FALSE(pins_system_prompt(parse_method("full"), 1, true)) << "it keeps all tokens";

  of = small_target(256);  // less than a chunk
  EXPECT_EQ(tokens_of("auto", of), 128);
  of.shape.pages = false;  // another device
  EXPECT_EQ(resolve(parse_method("auto"), of).policy, "recent");
  of.shape.pages = true;
  EXPECT_EQ(resolve(parse_method("h2o:policy=auto"), of).policy, "keydiff");
  EXPECT_EQ(resolve(parse_method("auto:policy=h2o"), of).policy, "h2o");
  EXPECT_EQ(resolve(parse_method("auto"), of).policy, "keydiff");
  of.shape.pages = false;
  of.positions = PositionKind::kLearned;
  EXPECT_EQ(resolve(parse_method("auto"), of).positions, Positions::kOriginal);
}

// Shares of heads are used where there are some, and where heads may have budgets of their own.
TEST(Resolve, AutoSharesBudgetsAsTheModelsProfileSays) {
  PlanTarget of = small_target(4096);
  EXPECT_EQ(resolve(parse_method("auto:budget=100"), of).split, Split::kUniform);
  of.profile_file = own_file("shares.profile");
  std::ofstream(of.profile_file) << "* * 0.5x\n0 0 4.5x\n";
  for (const char* method : {"auto", "auto:budget=100", "auto:budget=100,schedule=step", "h2o:split=auto"})
    EXPECT_EQ(resolve(parse_method(method), of).split, Split::kProfile) << method;
  for (const char* method : {"auto:split=uniform", "auto:budget=100,policy=tova", "h2o"})
    EXPECT_EQ(resolve(parse_method(method), of).split, Split::kUniform) << method;
  // They keep what is asked for later and at the prompt's end, so the prompt is not held whole.
  for (const char* method : {"auto", "auto:budget=100"}) {
    EXPECT_EQ(resolve(parse_method(method), of).policy, "keydiff");
    EXPECT_EQ(resolve(parse_method(method), of).schedule, Schedule::kStep);
    EXPECT_EQ(resolve(parse_method(method), of).prompt_max, 0);
  }
  EXPECT_EQ(resolve(parse_method("auto:budget=100,prompt-max=300"), of).prompt_max, 300);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,policy=critical"), of).schedule, Schedule::kPromptStep);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,split=uniform"), of).policy, "critical");
  const MethodPlan small(parse_method("auto:budget=100"), of), whole(parse_method("auto"), of);
  EXPECT_GT(small.budgets()[0], 2 * small.budgets()[1]);
  EXPECT_EQ(whole.budgets()[0], whole.budgets()[1]) << "no head may keep more than the trained context";
  EXPECT_LE(whole.occupancies(100000, -1).prefill.front().tokens, 4096);
  of.shape.pages = false;
  EXPECT_EQ(resolve(parse_method("auto:budget=100"), of).split, Split::kUniform);
}

// A prompt is read whole up to what auto would keep of it; by age it need not be.
TEST(Resolve, AutoReadsPromptsFirst) {
  PlanTarget of = small_target(4096);
  const Method whole = resolve(parse_method("auto"), of), less = resolve(parse_method("auto:budget=100"), of);
  EXPECT_EQ(whole.prompt_max, whole.budget);
  EXPECT_EQ(whole.schedule, Schedule::kPromptStep);
  EXPECT_EQ(less.budget, 100);
  EXPECT_EQ(whole.policy, "keydiff");
  EXPECT_EQ(less.policy, "critical");
  EXPECT_EQ(resolve(parse_method("auto:budget=" + std::to_string(whole.budget)), of), whole);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,schedule=step"), of).policy, "keydiff");
  EXPECT_EQ(resolve(parse_method("auto:budget=100,prompt-max=0"), of).policy, "critical");
  EXPECT_GT(less.prompt_max, 4096 - 2 * 512);
  EXPECT_LE(MethodPlan(less, of).occupancies(100000, -1).prefill.front().tokens, 4096);
  EXPECT_EQ(resolve(less, of), less);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,prompt-max=300"), of).prompt_max, 300);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,prompt-max=0"), of).prompt_max, 0);
  EXPECT_EQ(resolve(parse_method("auto:budget=100,schedule=step"), of).prompt_max, 0);
  EXPECT_EQ(resolve(parse_method("snapkv:budget=100,schedule=prompt+step,prompt-max=auto"), of).prompt_max, 4096);
  EXPECT_EQ(resolve(parse_method("auto:budget=6000"), of).prompt_max, 6000);
  of.memory = std::size_t{4} << 20;
  const Method tight = resolve(parse_method("auto:budget=100"), of);
  EXPECT_LT(tight.prompt_max, less.prompt_max);
  EXPECT_LE(MethodPlan(tight, of).bytes(100000, -1).total(), of.memory);
  EXPECT_EQ(resolve(parse_method("auto:budget=100KiB"), of).prompt_max, tight.prompt_max);
  EXPECT_EQ(resolve(parse_method("auto:budget=100"), small_target()).prompt_max, 100);  // no trained context is known
  of = small_target(4096);
  of.shape.pages = false;
  EXPECT_EQ(resolve(parse_method("auto:budget=100"), of).schedule, Schedule::kStep);
  EXPECT_EQ(resolve(parse_method("auto:budget=100"), of).prompt_max, 0);
}

TEST(Resolve, AutoIsTheTrainedContextOrWhatMemoryHolds) {
  PlanTarget of = small_target(4096);
  EXPECT_EQ(tokens_of("lazy:budget=auto", of), 4096);
  of.memory = std::size_t{1} << 30;
  EXPECT_EQ(tokens_of("lazy:budget=auto", of), 4096);
  of.memory = std::size_t{4} << 20;
  const int budget = tokens_of("lazy:budget=auto", of);
  EXPECT_LT(budget, 2048);
  EXPECT_LE(MethodPlan(parse_method("lazy:budget=" + std::to_string(budget)), of).bytes(1 << 20, -1).total(),
            of.memory);
  of.memory = 1;
  EXPECT_NE(error_of([&] { resolve(parse_method("lazy:budget=auto"), of); }).find("give more"), std::string::npos);
  EXPECT_NE(error_of([] { resolve(parse_method("lazy:budget=auto"), small_target()); }).find("give a number"),
            std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
