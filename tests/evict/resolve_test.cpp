#include "palimpsest/evict/resolve.h"

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

PlanTarget target(int trained_context = 0) {
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
  for (const char* preset : {"streaming", "h2o", "keydiff", "snapkv", "ems", "adakv", "pyramidkv", "paged-eviction", "lazy",
                             "lagkv", "expected-attention", "streaming:mechanism=append", "h2o:pin=100-149"}) {
    SCOPED_TRACE(preset);
    const std::string method = preset, with = method.find(':') == std::string::npos ? ":" : ",";
    const int budget = tokens_of(method + with + "budget=4MiB", target());
    EXPECT_GT(budget, 64);
    const auto bytes = [&](int tokens) {
      return cache_bytes(MethodPlan(parse_method(method + with + "budget=" + std::to_string(tokens)), target()));
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
  const auto budget_of = [](const std::string& text) { return get_option(parse_method("h2o:budget=" + text), "budget"); };
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
    EXPECT_NE(error_of([&] { parse_method(std::string("h2o:budget=") + bad); }).find("is no size: use B, KiB, MiB or GiB"),
              std::string::npos)
        << bad;
}

TEST(Resolve, TooFewBytes) {
  const std::string message = error_of([] { resolve(parse_method("streaming:budget=1KiB"), target()); });
  EXPECT_NE(message.find("budget 1KiB: a cache of the fewest tokens takes "), std::string::npos) << message;
  // As many as fit, but pinned are more.
  EXPECT_NE(error_of([] { MethodPlan(parse_method("h2o:budget=1MiB,pin=9-4999"), target()); }).find("pinned 4991"),
            std::string::npos);
}

TEST(Resolve, AutoIsTheTrainedContextOrWhatMemoryHolds) {
  PlanTarget of = target(4096);
  EXPECT_EQ(tokens_of("lazy:budget=auto", of), 4096);
  of.memory = std::size_t{1} << 30;
  EXPECT_EQ(tokens_of("lazy:budget=auto", of), 4096);
  of.memory = std::size_t{4} << 20;
  const int budget = tokens_of("lazy:budget=auto", of);
  EXPECT_LT(budget, 2048);
  EXPECT_LE(MethodPlan(parse_method("lazy:budget=" + std::to_string(budget)), of).bytes(1 << 20, -1).total(), of.memory);
  of.memory = 1;
  EXPECT_NE(error_of([&] { resolve(parse_method("lazy:budget=auto"), of); }).find("--cache-memory"), std::string::npos);
  EXPECT_NE(error_of([] { resolve(parse_method("lazy:budget=auto"), target()); }).find("give a number"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
