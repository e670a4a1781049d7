// Mechanism, way to keep positions, page size and path do not change a result: same kept sets, same top tokens, and
// the attention outputs of double precision. `make exactness` runs the whole grid; the suite draws some combinations
// and runs them on shorter texts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/exactness/run.h"
#include "tests/support/draws.h"
#include "tests/support/in_type.h"
#include "tests/support/own_file.h"
#include "tests/support/rpc_server.h"
#include "tests/support/shared_dir.h"
#include "tests/support/test_device.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

const std::vector<Path> kCpuPaths = {Path::kReference, Path::kFast, Path::kPortable};
const int kSome = test_length(12, 60, 5), kShort = test_length(200, 200, 120);  // combinations, tokens
const int kFamily = test_length(110, 130, 90), kFamilySome = test_length(1, 4, 1);
// One of kLongEvery combinations of the grid also reads kGridLong tokens, for rounding errors that add up (way
// `delta`). kLongEvery is coprime to the periods of the interleaved choices.
constexpr int kLong = 2000, kGrid = 200, kGridOfBytes = 200, kGridLong = 1000, kLongEvery = 41;

// A trained model in f32: products with quantised weights round the activations, which amplifies the rounding errors of
// attention.
std::string model_path() {
  return in_f32(default_model());
}
// stories260K, a twentieth of the default model.
std::optional<std::string> stories_path() {
  const auto path = stories260k();
  return path ? std::optional(in_f32(*path)) : std::nullopt;
}

// The grids take hours: the smaller model, if it is there.
std::string grid_path() {
  const auto small = stories_path();
  std::printf("model: %s\n", small ? "stories260K" : "the default model");
  return small ? *small : model_path();
}

struct Row {  // of the printed table: all combinations with one choice in common
  long long runs = 0, sets = 0, wrong_sets = 0, ties = 0, tops = 0, wrong_tops = 0, close = 0, parted = 0, outputs = 0;
  double worst = 0, worst_plain = 0, seconds = 0;

  void add(const Outcome& o, const TopDifference& d, double s) {
    ++runs;
    sets += o.verdict.sets;
    wrong_sets += o.verdict.kept_wrong;
    ties += o.verdict.ties;
    outputs += o.verdict.outputs;
    tops += d.compared;
    wrong_tops += d.wrong;
    close += d.close;
    parted += d.parted;
    worst = std::max(worst, o.verdict.worst);
    worst_plain = std::max(worst_plain, o.verdict.worst_plain);
    seconds += s;
  }
};

class Table {
 public:
  void add(const Combination& c, const Outcome& o, const TopDifference& d, double seconds) {
    for (const std::string& key :
         {std::string("0all"), "1path " + name_of(c.path) + ", " + name_of(c.type), "2policy " + c.policy,
          "3mechanism " + c.mechanism, "4positions " + c.positions + (c.way.empty() ? "" : ", " + c.way),
          "5schedule " + c.timing.options + ", chunks of " + std::to_string(c.timing.chunk),
          "7sequences: " + std::to_string(c.sequences), std::string("7threads: " + std::to_string(c.threads)),
          std::string("8budgets: ") + (c.split.empty()                            ? "alike"
                                       : c.split == "ada" || c.split == "pyramid" ? c.split
                                                                                  : "of a file"),
          "9pins: " + (c.pin.empty() ? "none" : c.pin), "6pages of " + std::to_string(c.page_size)})
      rows_[key].add(o, d, seconds);
  }
  void print() const {
    std::printf(
        "| | sequences | sets compared | differ | ties | top tokens compared | differ | too close | runs parted | "
        "outputs compared | worst error | not divided by the scores' size | s |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (const auto& [key, r] : rows_)
      std::printf("| %s | %lld | %lld | %lld | %lld | %lld | %lld | %lld | %lld | %lld | %.1e | %.1e | %.0f |\n",
                  key.c_str() + 1, r.runs, r.sets, r.wrong_sets, r.ties, r.tops, r.wrong_tops, r.close, r.parted,
                  r.outputs, r.worst, r.worst_plain, r.seconds);
  }

 private:
  std::map<std::string, Row> rows_;
};

void check(Laboratory& laboratory, const std::vector<Combination>& some) {
  if (some.empty() && std::getenv("PALIMPSEST_ONLY") != nullptr)
    GTEST_SKIP() << "PALIMPSEST_ONLY names none of these combinations";
  ASSERT_FALSE(some.empty());
  Table table;
  int done = 0;
  for (const Combination& c : some) {
    if (++done % 100 == 0) std::fprintf(stderr, "%d of %zu\n", done, some.size());
    SCOPED_TRACE(c.name());
    const auto start = std::chrono::steady_clock::now();
    const std::vector<Outcome> outcomes = laboratory.run(c);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (int i = 0; i < c.sequences; ++i) {
      const Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
      const TopDifference tops = compare_tops(outcome, laboratory.baseline(c, i), c, laboratory.table_steps());
      EXPECT_EQ(outcome.verdict.kept_wrong, 0) << outcome.verdict.first_wrong;
      EXPECT_LE(outcome.verdict.worst, attention_bound(c)) << outcome.verdict.where;
      EXPECT_EQ(tops.wrong, 0) << "sequence " << i << ", first at token " << tops.first;
      EXPECT_GT(tops.compared, 0);
      if (!may_part(outcome, laboratory.baseline(c, i), c)) {
        EXPECT_EQ(tops.parted, 0) << "other tokens are kept after token " << tops.compared;
      }
      table.add(c, outcome, tops, seconds / c.sequences);
    }
  }
  if (::testing::Test::HasFailure() || std::getenv("PALIMPSEST_EXACTNESS") != nullptr) table.print();
}

const bool g_vulkan_settings = set_up_vulkan();

bool has_vulkan() {
  return g_vulkan_settings && has_test_device();
}

// PALIMPSEST_ONLY="mechanism=shift" restricts the grid and random draws to combinations whose names contain it.
std::vector<Combination> only_named(std::vector<Combination> all) {
  if (const char* only = std::getenv("PALIMPSEST_ONLY"))
    std::erase_if(all, [&](const Combination& c) { return c.name().find(only) == std::string::npos; });
  return all;
}

// Random combinations for which `is` holds; fewer than `count` if PALIMPSEST_ONLY names fewer.
template <typename Is>
std::vector<Combination> drawn(int count, const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                               const std::string& split, Is is) {
  const char* only = std::getenv("PALIMPSEST_ONLY");
  std::vector<Combination> some;
  std::set<std::string> names;
  for (int tries = 0; tries < 3'000'000 && std::ssize(some) < count; ++tries) {
    const std::optional<Combination> c = drawn_combination(paths, types, split, draws());
    if (!c || !is(*c) || (only != nullptr && c->name().find(only) == std::string::npos)) continue;
    if (names.insert(c->name()).second) some.push_back(*c);
  }
  std::printf("%zu combinations\n", some.size());
  if (only == nullptr) {
    EXPECT_EQ(std::ssize(some), count) << "too few combinations exist";
  }
  return some;
}
std::vector<Combination> drawn(int count, const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                               const std::string& split) {
  return drawn(count, paths, types, split, [](const Combination&) { return true; });
}

// PALIMPSEST_EXACTNESS_PART=2/4: every fourth result, starting with the second. Combinations with the same result share
// one baseline, so they are in the same part.
std::vector<Combination> part_of(std::vector<Combination> all) {
  all = only_named(std::move(all));
  int part = 1, parts = 1;
  const char* text = std::getenv("PALIMPSEST_EXACTNESS_PART");
  if (text != nullptr && (std::sscanf(text, "%d/%d", &part, &parts) != 2 || part < 1 || part > parts))
    ADD_FAILURE() << "PALIMPSEST_EXACTNESS_PART=" << text << ": give PART/PARTS, as in 2/4";
  std::map<std::string, std::size_t> results;
  std::vector<Combination> some;
  for (const Combination& c : all) {
    const std::size_t result = results.try_emplace(c.result(), results.size()).first->second;
    if (result % static_cast<std::size_t>(parts) == static_cast<std::size_t>(part - 1)) some.push_back(c);
  }
  std::printf("%zu of %zu combinations of %zu results, part %d of %d\n", some.size(), all.size(), results.size(), part,
              parts);
  return some;
}

// `what` is the value of PALIMPSEST_EXACTNESS: "grid", "all" or a number of random combinations.
std::vector<Combination> named_by(const std::string& what, const std::vector<Path>& paths,
                                  const std::vector<CacheTypes>& types, const std::string& split) {
  if (what == "grid") return part_of(covering_combinations(paths, types, split));
  if (what == "all") return part_of(all_combinations(paths, types, split));
  return drawn(std::stoi(what), paths, types, split);
}

TEST(Exactness, SomeCombinations) {
  Laboratory laboratory(model_path(), kShort);
  check(laboratory, drawn(kSome, kCpuPaths, kTypes, laboratory.split()));
}

TEST(Exactness, SomeCombinationsOfStories260K) {
  const auto path = stories_path();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  Laboratory laboratory(*path, kShort);
  check(laboratory, drawn(kSome, kCpuPaths, kTypes, laboratory.split()));
}

// In the grid critical has the size ||v||: some families' models have no output projections that it can read.
TEST(Exactness, CriticalAsInItsPaper) {
  Laboratory laboratory(model_path(), kShort);
  std::vector<Combination> both;
  for (const char* split : {"", "ada"})
    both.push_back({.policy = "critical",
                    .mechanism = "in-place",
                    .positions = "original",
                    .way = "",
                    .variant = "first=0.5,size=projected",
                    .timing = {"schedule=prompt", 110, 40, 300},
                    .split = split});
  check(laboratory, both);
}

// Kinds that are rare among random draws: repeated prompts, budgets by scores and by layer, merged tokens.
TEST(Exactness, SomeCombinationsOfRareKinds) {
  Laboratory laboratory(model_path(), kShort);
  const auto some_of = [&](const char* what, auto is) {
    SCOPED_TRACE(what);
    std::printf("%s: ", what);
    check(laboratory, drawn(1, kCpuPaths, kTypes, laboratory.split(), is));  // more: make exactness
  };
  some_of("kvzip", [](const Combination& c) { return c.policy == "kvzip"; });
  some_of("ada", [](const Combination& c) { return c.split == "ada"; });
  some_of("pyramid", [](const Combination& c) { return c.split == "pyramid"; });
  some_of("merge", [](const Combination& c) { return c.mechanism == "merge"; });
  some_of("merge, own positions", [](const Combination& c) { return c.mechanism == "merge-own"; });
}

// Mechanism match: tokens kept, and outputs with the fitted values and biases (truth_match.cpp). No baseline: a fit
// amplifies rounding.
void check_matches(Laboratory& laboratory) {
  const auto matched = [](Combination c) {
    c.mechanism = "match";
    std::string& options = c.timing.options;
    if (options == "schedule=prompt+step") options += ",every=16";
    if (options.starts_with("every"))
      options = options.find("after") == std::string::npos ? "every=16" : "every=20,overlap=4,evict=after";
    return c;
  };
  for (const Combination& of : drawn(kSome / 3, {Path::kReference, Path::kFast}, kTypes, laboratory.split(),
                                     [&](const Combination& c) { return matched(c).exists(); })) {
    const Combination c = matched(of);
    SCOPED_TRACE(c.name());
    for (const Outcome& outcome : laboratory.run(c)) {
      EXPECT_EQ(outcome.verdict.kept_wrong, 0) << outcome.verdict.first_wrong;
      EXPECT_LE(outcome.verdict.worst, attention_bound(c)) << outcome.verdict.where;
    }
  }
}

TEST(Exactness, SomeCombinationsThatMatch) {
  Laboratory laboratory(model_path(), kShort);
  check_matches(laboratory);
}

TEST(Exactness, SomeCombinationsThatMatchOfStories260K) {
  const auto path = stories_path();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  Laboratory laboratory(*path, kShort);
  check_matches(laboratory);
}

TEST(Exactness, SomeCombinationsOfBytes) {
  Laboratory laboratory(model_path(), kShort);
  check(laboratory, drawn(kSome / 3, {Path::kReference, Path::kFast}, kTypesOfBytes, laboratory.split()));
}

// ggml's products and flash attention read q8_0, too.
TEST(Exactness, SomeCombinationsOfBytesOnDevices) {
  Laboratory laboratory(model_path(), kShort);
  check(laboratory, drawn(test_length(1, 12, 1), {Path::kPortable}, {CacheType::kQ8_0}, laboratory.split()));
}

// Keys and values of different types.
TEST(Exactness, SomeCombinationsOfMixedTypes) {
  Laboratory laboratory(model_path(), kShort);
  check(laboratory, drawn(kSome / 3, kCpuPaths, kMixedTypes, laboratory.split()));
}

TEST(Exactness, SomeCombinationsOnVulkan) {
  if (!has_vulkan()) GTEST_SKIP() << "needs ggml's Vulkan backend and a Vulkan device";
  Laboratory laboratory(model_path(), 60);
  const auto alone = [](const Combination& c) { return c.sequences == 1; };  // a step takes 50 ms
  check(laboratory, drawn(test_length(1, 4, 1), {Path::kVulkan}, kTypes, laboratory.split(), alone));
}

// Policies that run on other devices, over two servers: some, each in the long form.
TEST(Exactness, SomeCombinationsOverRpc) {
  if (const std::string why = why_no_rpc(); !why.empty()) GTEST_SKIP() << why;
  Laboratory laboratory(model_path(), kShort);
  for (const std::string& policy : some_of(device_policies(), 6)) {
    const auto of_policy = [&](const Combination& c) { return c.policy == policy; };
    std::printf("%s: ", policy.c_str());
    check(laboratory, drawn(test_length(1, 6, 1), {Path::kRpc}, kTypes, laboratory.split(), of_policy));
  }
}

// The smallest model of each family, with all of the family's features: RoPE by halves, by pairs, on a part of a head,
// with two tables, or none; learned positions; ALiBi; attention windows in some layers; soft-capped scores.
TEST(Exactness, SomeCombinationsOfEveryFamily) {
  for (const auto& [name, shape] : synthetic_shapes()) {
    if (!name.starts_with("tiny-")) continue;
    SyntheticShape small = shape;
    small.vocabulary = 300;
    // All experts: a near tie of a router would give a token another result by rounding alone.
    if (name == "tiny-mimo2" || name == "tiny-mellum" || name == "tiny-gemma4-moe") small.experts_used = small.experts;
    if (name == "tiny-llama4") small.keys.push_back({"attention.sliding_window", ExtraKey::Type::kInteger, 24});
    const std::string path =
        (std::filesystem::temp_directory_path() / fmt::format("{}-{}.gguf", ::getpid(), name)).string();
    write_synthetic(small, path);
    Laboratory laboratory(path, kFamily);
    const bool learned = laboratory.positions() == PositionKind::kLearned;
    const bool by_position = find_family(shape.architecture).qk_norm == QkNorm::kAfterRotation;
    std::printf("%s: ", name.c_str());
    SCOPED_TRACE(name);
    check(laboratory, drawn(kFamilySome, kCpuPaths, kTypes, laboratory.split(), [&](const Combination& c) {
            if (c.positions == "cache" && (learned || (by_position && c.policy == "recent"))) return false;
            return !by_position || (c.policy != "expected-attention" && c.policy != "triattention");
          }));
    std::filesystem::remove(path);
  }
}

// Heads of two widths, in pages of two sizes: more combinations, and types of which only some have blocks. The first
// model has layers that share a cache.
TEST(Exactness, SomeCombinationsOfHeadsOfTwoWidths) {
  for (const char* name : {"tiny-gemma4", "tiny-gemma4-moe"}) {
    SyntheticShape shape = parse_synthetic(name);
    shape.vocabulary = 300;
    shape.experts_used = shape.experts;  // as in SomeCombinationsOfEveryFamily
    const std::string path = testing::own_file(fmt::format("{}-widths.gguf", name));
    write_synthetic(shape, path);
    Laboratory laboratory(path, kFamily);
    SCOPED_TRACE(name);
    check(laboratory, drawn(test_length(3, 40, 1), kCpuPaths, kTypes, laboratory.split()));
    check(laboratory, drawn(test_length(1, 10, 1), kCpuPaths, kMixedTypes, laboratory.split()));
  }
}

// YaRN and a scaled base: rotations have a magnitude, and frequencies are not those of one base.
TEST(Exactness, SomeCombinationsOfScaledRotation) {
  SyntheticShape shape = parse_synthetic("tiny-qwen2");
  shape.vocabulary = 300;
  shape.rope_scaling = "yarn";
  shape.rope_factor = 4;
  shape.original_context = 64;
  shape.context = 256;
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("{}-yarn.gguf", ::getpid())).string();
  write_synthetic(shape, path);
  Laboratory laboratory(path, kShort);
  check(laboratory, drawn(kFamilySome, kCpuPaths, kTypes, laboratory.split()));
  std::filesystem::remove(path);
}

// A model with an attention window in every other layer. 24 tokens: all budgets but the smallest of pyramid and ada
// hold the whole window. 70 tokens: the policy evicts inside the window.
class WindowedModel {
 public:
  explicit WindowedModel(int window)
      : path_(
            (std::filesystem::temp_directory_path() / fmt::format("{}-window-{}.gguf", ::getpid(), window)).string()) {
    SyntheticShape shape = parse_synthetic("tiny-gemma2");
    shape.vocabulary = 300;
    for (ExtraKey& key : shape.keys)
      if (key.name == "attention.sliding_window") key.value = window;
    write_synthetic(shape, path_);
  }
  ~WindowedModel() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};
constexpr int kWindows[] = {24, 70};

TEST(Exactness, SomeCombinationsOfWindows) {
  for (const int window : kWindows) {
    SCOPED_TRACE(fmt::format("windows of {}", window));
    const WindowedModel model(window);
    Laboratory laboratory(model.path(), kShort);
    check(laboratory, drawn(kFamilySome, kCpuPaths, kTypes, laboratory.split()));
  }
}

// The oracles detect a wrong budget, kind of positions, schedule, merging, pooling, page, split or attention window.
TEST(Exactness, AnotherMethodIsFoundOut) {
  Laboratory laboratory(model_path(), kShort);
  const Combination right = {
      .policy = "recent", .mechanism = "in-place", .positions = "cache", .way = "fused", .timing = {"every=1"}};
  EXPECT_EQ(laboratory.run(right).front().verdict.kept_wrong, 0);

  const std::string of_47 = "streaming:budget=47,sinks=4", of_original = "streaming:budget=48,positions=original",
                    of_8 = "streaming:budget=48,every=8";
  EXPECT_GT(laboratory.run(right, of_47).front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(right, of_8).front().verdict.kept_wrong, 0);
  const Verdict other_positions = laboratory.run(right, of_original).front().verdict;
  EXPECT_EQ(other_positions.kept_wrong, 0);
  EXPECT_GT(other_positions.worst, 1e-3);

  const Combination merged = {
      .policy = "snapkv", .mechanism = "merge", .positions = "original", .way = "", .timing = {"every=1"}};
  EXPECT_EQ(laboratory.run(merged).front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(merged, merged.method() + ",tau=0.9").front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(merged, merged.method() + ",merge-position=own").front().verdict.worst, 1e-3);
  EXPECT_GT(laboratory.run(merged, merged.method() + ",merged-key=mean").front().verdict.worst, 1e-4);
  EXPECT_GT(laboratory.run(merged, merged.method() + ",similarity=value").front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(merged, merged.method() + ",pooling=none").front().verdict.kept_wrong, 0);
  Combination paged = right;
  paged.policy = "paged-eviction";
  paged.mechanism = "block";
  EXPECT_EQ(laboratory.run(paged).front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(paged, paged.method() + ",page=8").front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(paged, paged.method() + ",page-score=norms").front().verdict.kept_wrong, 0);
  Combination pyramid = right;
  pyramid.policy = "knorm";
  pyramid.split = "pyramid";
  EXPECT_EQ(laboratory.run(pyramid).front().verdict.kept_wrong, 0);
  EXPECT_GT(laboratory.run(pyramid, pyramid.method() + ",split=uniform").front().verdict.kept_wrong, 0);

  const WindowedModel windowed(24);
  Laboratory of_windows(windowed.path(), kShort);
  for (const char* policy : {"recent", "knorm"}) {
    Combination held = right;
    held.policy = policy;
    EXPECT_EQ(of_windows.run(held).front().verdict.kept_wrong, 0);
    EXPECT_GT(of_windows.run_without_windows(held).verdict.kept_wrong, 0);
  }

  Combination other = right;
  other.policy = "random";
  EXPECT_GT(compare_tops(laboratory.run(other).front(), laboratory.baseline(right, 0), right).wrong, 0);
}

TEST(Exactness, TheGridOfLongTexts) {
  const char* what = std::getenv("PALIMPSEST_EXACTNESS");
  if (what == nullptr || std::string(what) != "grid") GTEST_SKIP() << "the long form: make exactness EXACTNESS=grid";
  Laboratory laboratory(grid_path(), kGridLong);
  const auto all = covering_combinations(kCpuPaths, kTypes, laboratory.split());
  std::vector<Combination> some;
  for (std::size_t i = 0; i < all.size(); i += kLongEvery) some.push_back(all[i]);
  check(laboratory, part_of(some));
}

TEST(Exactness, TheGrid) {
  const char* what = std::getenv("PALIMPSEST_EXACTNESS");
  if (what == nullptr) GTEST_SKIP() << "the long form: make exactness";
  Laboratory laboratory(grid_path(), std::string(what) == "grid" ? kGrid : kLong);
  check(laboratory, named_by(what, kCpuPaths, kTypes, laboratory.split()));
}

// q8_0 needs a head width that is a multiple of 32, as in the default model. That model is larger: fewer tokens.
TEST(Exactness, TheGridOfBytes) {
  const char* text = std::getenv("PALIMPSEST_EXACTNESS");
  if (text == nullptr) GTEST_SKIP() << "the long form: make exactness";
  const std::string what = text;
  Laboratory laboratory(model_path(), what == "grid" ? kGridOfBytes : kLong);
  const bool named = what == "grid" || what == "all";
  check(laboratory, named_by(named ? what : "40", {Path::kReference, Path::kFast}, kTypesOfBytes, laboratory.split()));
}

TEST(Exactness, TheGridOfMixedTypes) {
  if (std::getenv("PALIMPSEST_EXACTNESS") == nullptr) GTEST_SKIP() << "the long form: make exactness";
  Laboratory laboratory(model_path(), kGridOfBytes);
  check(laboratory, drawn(40, kCpuPaths, kMixedTypes, laboratory.split()));
}

TEST(Exactness, TheGridOfWindows) {
  const char* what = std::getenv("PALIMPSEST_EXACTNESS");
  if (what == nullptr) GTEST_SKIP() << "the long form: make exactness";
  for (const int window : kWindows) {
    SCOPED_TRACE(fmt::format("windows of {}", window));
    const WindowedModel model(window);
    Laboratory laboratory(model.path(), kFamily);
    check(laboratory, named_by(what, {Path::kReference, Path::kFast}, {CacheType::kF32}, laboratory.split()));
  }
}

TEST(Exactness, TheGridOnVulkan) {
  if (std::getenv("PALIMPSEST_EXACTNESS") == nullptr) GTEST_SKIP() << "the long form: make exactness";
  if (!has_vulkan()) GTEST_SKIP() << "needs ggml's Vulkan backend and a Vulkan device";
  Laboratory laboratory(model_path(), 300);
  check(laboratory, drawn(16, {Path::kVulkan}, kTypes, laboratory.split()));
}

}  // namespace
}  // namespace palimpsest::testing
