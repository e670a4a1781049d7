#include "tests/exactness/combination.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace palimpsest::testing {

namespace {

const std::vector<std::string> kPolicies = {"none",
                                            "recent",
                                            "h2o",
                                            "random",
                                            "knorm",
                                            "keydiff",
                                            "lagkv",
                                            "paged-eviction",
                                            "r-kv",
                                            "snapkv",
                                            "tova",
                                            "scissorhands",
                                            "expected-attention",
                                            "triattention",
                                            "kvzip",
                                            "global-local",
                                            "learned",
                                            "temporal",
                                            "kvzap",
                                            "observed-attention",
                                            "peak",
                                            "a2sf",
                                            "critical",
                                            "qfilter",
                                            "vase"};
// Policies that expect queries at later positions of the text.
bool looks_ahead(const std::string& policy) {
  return policy == "expected-attention" || policy == "triattention" || policy == "qfilter";
}
// Policies that compare keys or values of the cache.
bool compares_rows(const std::string& policy) {
  return policy == "keydiff" || policy == "lagkv" || policy == "r-kv" || looks_ahead(policy);
}
// Policies that need the CPU's fast path.
bool host_only(const std::string& policy) {
  return policy == "kvzip" || policy == "peak" || policy == "global-local" || policy == "temporal" ||
         policy == "r-kv" || policy == "expected-attention" || policy == "qfilter";
}

// Policies whose scores have rounding errors: attention weights, comparisons of rows.
bool rounded_score(const std::string& policy) {
  return compares_rows(policy) || policy == "h2o" || policy == "snapkv" || policy == "tova" ||
         policy == "scissorhands" || policy == "global-local" || policy == "kvzip" || policy == "temporal" ||
         policy == "observed-attention" || policy == "peak" || policy == "a2sf" || policy == "critical" ||
         policy == "vase";
}
const std::vector<std::string> kMechanisms = {"in-place", "shift", "gather", "block", "append", "merge", "merge-own"};
const std::vector<std::pair<std::string, std::string>> kPositions = {{"original", ""},       {"cache", "two-query"},
                                                                     {"cache", "fused"},     {"cache", "cached-half"},
                                                                     {"cache", "recompute"}, {"cache", "delta"}};
// Evictions at every token (chunks of 1, 5, 40); every 8 and every 3 tokens; every 7 with slack and max-drop; after
// the forward pass, with slack, with overlap; once
// after the prompt; from its end on; when a page is full; with spared victims (refresh).
const std::vector<Timing> kTimings = {
    {"every=1"},
    {"every=1", kAll, 5},
    {"every=1", kAll, 40},
    {"every=8"},
    {"every=3", kAll, 5},
    {"every=7,slack=5,max-drop=2"},
    {"every=1,slack=3,evict=after", kAll, 5},
    {"every=5,overlap=6,evict=after"},
    {"schedule=prompt", 110, 40, 300},
    {"schedule=prompt+step", 110, 50},
    {"schedule=page", 1, 1, kAll, true},
    {"every=6,refresh=2"},
};
// Options of policies and of merging.
const std::vector<std::string>& variants_of(const Combination& c) {
  static const std::vector<std::string> none = {""},
                                        snapkv = {"", "pooling=avg,kernel=5", "window=16,pooling=none",
                                                  "window=20,kernel=3"},
                                        stages = {"", "first=0.5", "first=0.2,window=16"},
                                        global_local = {"", "score=global,pooling=max", "score=local,window=16",
                                                        "window=8,kernel=3", "score=both,pooling=none,window=24"};
  static const std::vector<std::string> merge = {"",
                                                 "similarity=product,merged-key=mean,zero-class=on",
                                                 "similarity=key,window=16",
                                                 "similarity=value,merged-key=mean,kernel=5",
                                                 "similarity=product,zero-class=on,pooling=max",
                                                 "merged-key=mean,tau=0"};
  static const std::vector<std::string> pages = {"", "page=8", "page=16"}, norms = {"", "page=8", "page-score=norms"};
  if (c.block()) return c.policy == "paged-eviction" ? norms : pages;
  // Which weights are the highest depends on their rounding: one decision, from weights in f32.
  if (c.policy == "critical" && c.timing.options == "schedule=prompt" && c.type == CacheType::kF32 && !c.rerotated() &&
      !c.stock_operators())
    return stages;
  return c.merges() ? merge : c.policy == "snapkv" ? snapkv : c.policy == "global-local" ? global_local : none;
}
const std::vector<int> kPageSizes = {16, 32, 64, kBudget};
// Budgets by layer and head: uniform, by a file, by layer, by score.
std::vector<std::string> splits_of(const std::string& file) {
  return {"", file, "pyramid", "ada"};
}
// None; at the start; elsewhere; both, the first one with the sinks.
const std::vector<std::string> kPins = {"", kPinAtStart, "9-12", "3-5+20-24"};

}  // namespace

std::vector<std::string> device_policies() {
  std::vector<std::string> out;
  std::ranges::remove_copy_if(kPolicies, std::back_inserter(out), host_only);
  return out;
}

std::string name_of(Path path) {
  switch (path) {
    case Path::kReference:
      return "reference";
    case Path::kFast:
      return "fast";
    case Path::kPortable:
      return "portable";
    case Path::kVulkan:
      return "vulkan";
    case Path::kRpc:
      return "rpc";
  }
  return "?";
}

std::string Combination::method() const {
  if (policy == "none") return "full";
  const std::string how = way.empty() ? "" : ",rerotate=" + way;
  const int recent = block() ? 1 : policy == "h2o" ? 16 : policy == "random" ? 5 : merges() ? 8 : 0;
  // A low threshold, so that many tokens are merged, and a large gamma, so that no merged token is evicted: the cache
  // then shows which cluster each was merged into.
  const std::string merge = !merges()                  ? ""
                            : mechanism == "merge-own" ? ",tau=0.3,gamma=64,merge-position=own"
                                                       : ",tau=0.3,gamma=64,merge-position=representative";
  return fmt::format("streaming:policy={},budget={},sinks=4,recent={},mechanism={}{},positions={}{}{}{}{}{},{}{}{}",
                     policy, budget(), recent, merges() ? "merge" : mechanism, merge, positions, how,
                     split.empty() ? "" : ",split=", split, pin.empty() ? "" : ",pin=", pin, timing.options,
                     variant.empty() ? "" : ",", variant);
}

std::string Combination::name() const {
  return fmt::format("{} prompt={} chunk={} page={} sequences={} threads={} {} {}", method(), timing.prompt,
                     timing.chunk, page_size, sequences, threads, name_of(type), name_of(path));
}

std::string Combination::result() const {
  // Sinks + window do not depend on the chunk: each query sees what it would see token by token.
  std::string result = fmt::format("{} {} {}{}", policy, positions, timing.options, block() ? " block" : "");
  if (!windowed() || timing.max != kAll || timing.options.find("prompt") != std::string::npos)
    result += fmt::format(" prompt={} chunk={}", timing.prompt, timing.chunk);
  if (!split.empty()) result += split == "ada" || split == "pyramid" ? " " + split : " uneven";
  if (merges()) result += " " + mechanism;
  if (!variant.empty()) result += " " + variant;
  if (!pin.empty()) result += " pin=" + pin;
  if (timing.by_page || block()) result += fmt::format(" page={}", page_size);
  if (type != CacheType::kF32)
    result += fmt::format(" {} rotated={} copied={} rerotated={}", name_of(type), rotated(), copied(), rerotated());
  // Other devices round matrix products and vector products differently.
  if (path == Path::kVulkan) result += fmt::format(" vulkan prompt={} chunk={}", timing.prompt, timing.chunk);
  return result;
}

Combination Combination::baseline() const {
  Combination base = *this;
  if (!block() && !merges()) base.mechanism = rerotated() && type.key != CacheType::kF32 ? "shift" : "in-place";
  base.sequences = 1;
  base.threads = 1;
  // All ways store the same keys in f32; in other types only those that round alike share a baseline.
  if (!way.empty() && !(type.key != CacheType::kF32 && (rotated() || copied() || rerotated()))) base.way = "fused";
  if (!timing.by_page && !block()) base.page_size = 16;
  if (path != Path::kVulkan) base.path = Path::kReference;
  return base;
}

// Block: three pages and part of a fourth. The page of the sinks and the newest page stay, and up to two of a pin.
int Combination::budget() const {
  return block() ? (pins_at_start_only() ? 3 : 5) * page_size + 5 : kBudget;
}

bool Combination::exists() const {
  const bool plain = timing.options == "every=1";
  if (!pin.empty() && (policy == "none" || (!split.empty() && split != "ada"))) return false;
  if (policy == "none" && (mechanism != "in-place" || positions != "original" || !plain)) return false;
  const bool spare = timing.options.find("refresh") != std::string::npos;
  const bool overlap = timing.options.find("overlap") != std::string::npos;
  const bool grows = timing.options.find("prompt") != std::string::npos;
  if (way == "two-query" && (policy != "recent" || spare || block() || !pins_at_start_only())) return false;
  // The mean scores of two pages may be equal within rounding, so policies with rounded scores are left out.
  if (block() && (rounded_score(policy) || page_size > 32 || !split.empty())) return false;
  if (block() && timing.options != "every=1" && timing.options.find("schedule") == std::string::npos) return false;
  if (policy == "tova" && !split.empty()) return false;  // one decision for all heads of a layer
  if (policy == "kvzip" && !grows) return false;         // scores a whole prompt
  if (stock_operators() && host_only(policy)) return false;
  // Pyramid: the last layer has two unprotected tokens. Ada compares heads at the end of a prompt.
  if (split == "pyramid" && (spare || overlap || timing.options.find("slack") != std::string::npos)) return false;
  if (split == "ada" && !scored()) return false;
  if (split == "ada" && !grows &&
      (mechanism == "append" || merges() || timing.options.find("max-drop") != std::string::npos))
    return false;
  if (mechanism == "match" && (policy == "none" || positions != "original" || stock_operators())) return false;
  // f32 only: a cluster is rounded again whenever a token is merged into it. One eviction between two steps, so that
  // the cache shows which tokens were merged.
  if (merges()) {
    if (policy != "snapkv" && policy != "global-local") return false;
    if (type != CacheType::kF32 || spare || (timing.chunk > 1 && timing.options != "schedule=prompt")) return false;
    if (positions == "cache" && (mechanism == "merge-own" || way == "cached-half")) return false;
    if (stock_operators()) return false;
  }
  if (looks_ahead(policy) && positions == "cache") return false;
  if (compares_rows(policy) && way == "delta") return false;
  if (way == "delta" && ((mechanism != "shift" && mechanism != "gather") || stock_operators())) return false;
  if (!kv_format(type.key).elementwise() && (way == "delta" || way == "recompute" || way == "cached-half"))
    return false;
  const auto of_devices = [](CacheType each) { return kv_format(each).elementwise() || each == CacheType::kQ8_0; };
  if ((!of_devices(type.key) || !of_devices(type.value)) && stock_operators()) return false;
  // ggml chooses codes of q8_0 with an unrounded scale: a key may be a code apart from the naive model's, and scores of
  // this model grow to 240.
  if (!kv_format(type.key).elementwise() && stock_operators() && scored()) return false;
  // Victims are spared evenly by age: if two near-equal scores swap, other victims are spared. Keys that are rounded at
  // each move give scores that cannot be compared.
  const bool rounded = type != CacheType::kF32 || path == Path::kVulkan || (stock_operators() && compares_rows(policy));
  if (scored() && rounded && (spare || overlap || way == "delta" || split == "ada")) return false;
  if (policy == "none" && !split.empty()) return false;
  if (sequences > 1 && (timing.prompt == kAll || grows)) return false;  // lockstep: one token per step
  return true;
}

namespace {

template <typename Visit>
void for_each_choice(const std::vector<Path>& paths, const std::vector<CacheTypes>& types, Visit visit) {
  for (const auto& policy : kPolicies)
    for (const auto& mechanism : kMechanisms)
      for (const auto& [positions, way] : kPositions)
        for (const auto& timing : kTimings)
          for (const CacheTypes& type : types)
            for (const Path path : paths)
              visit(Combination{.policy = policy,
                                .mechanism = mechanism,
                                .positions = positions,
                                .way = way,
                                .timing = timing,
                                .type = type,
                                .path = path});
}

constexpr int kSequences[] = {1, 3};
constexpr int kThreads[] = {1, 2};

}  // namespace

std::vector<Combination> all_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                          const std::string& split) {
  std::vector<Combination> all;
  for_each_choice(paths, types, [&](Combination c) {
    for (const int page_size : kPageSizes)
      for (const int sequences : kSequences)
        for (const std::string& budgets : splits_of(split))
          for (const std::string& variant : variants_of(c))
            for (const std::string& pin : kPins)
              for (const int threads : kThreads) {
                c.page_size = page_size;
                c.sequences = sequences;
                c.split = budgets;
                c.threads = threads;
                c.variant = variant;
                c.pin = pin;
                if (c.exists()) all.push_back(c);
              }
  });
  return all;
}

std::optional<Combination> drawn_combination(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                             const std::string& split, std::mt19937& random) {
  const auto one_of = [&](const auto& choices) {
    return choices[std::uniform_int_distribution<std::size_t>(0, std::size(choices) - 1)(random)];
  };
  const auto [positions, way] = one_of(kPositions);
  Combination c{.policy = one_of(kPolicies),
                .mechanism = one_of(kMechanisms),
                .positions = positions,
                .way = way,
                .timing = one_of(kTimings),
                .page_size = one_of(kPageSizes),
                .type = one_of(types),
                .path = one_of(paths),
                .sequences = one_of(kSequences),
                .split = one_of(splits_of(split)),
                .pin = one_of(kPins),
                .threads = one_of(kThreads)};
  c.variant = one_of(variants_of(c));
  if (!c.exists()) return std::nullopt;
  return c;
}

std::vector<Combination> covering_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                               const std::string& split) {
  std::vector<Combination> some;
  std::size_t next = 0;
  for_each_choice(paths, types, [&](Combination c) {
    c.page_size = kPageSizes[next % kPageSizes.size()];
    if (c.exists() && next % 5 > 2) c.sequences = 3;
    if (next % 3 == 2) c.threads = 2;
    const std::string splits[] = {"", "pyramid", "", "ada", "", split, split};
    c.split = splits[next % 7];
    if (c.split == "ada" && !c.exists()) c.split = "pyramid";
    if (!c.exists()) c.sequences = 1;
    if (!c.exists()) c.split.clear();
    c.pin = kPins[next % 11 % kPins.size()];
    if (!c.exists()) c.pin.clear();
    if (!c.exists() && c.block()) c.page_size = next % 2 == 0 ? 16 : 32;
    if (!c.exists()) return;
    c.variant = variants_of(c)[next / 3 % variants_of(c).size()];
    some.push_back(c);
    ++next;
  });
  return some;
}

}  // namespace palimpsest::testing
