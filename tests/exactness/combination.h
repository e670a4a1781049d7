// The grid: all combinations of the choices that define the result and of those that must not change it.
//
//   define the result    policy and its options, schedule, kind of positions; chunks, unless the policy is sinks +
//   window; budgets by
//                        layer and head (file, pyramid, ada); merging; block with its page size; in two-byte caches
//                        also the types and whether keys are stored rotated, because of rounding
//   must not change it   mechanism except block and merge, way to keep positions, page size, path, threads, number of
//                        sequences in a step
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/evict/method.h"

namespace palimpsest::testing {

enum class Path { kReference, kFast, kPortable, kVulkan, kRpc };  // kRpc: two servers on loopback

struct Timing {
  std::string options;   // of the method
  int prompt = 1;        // tokens read as a prompt; the others one by one
  int chunk = 1;         // tokens per step of the prompt
  int max = 1 << 30;     // total tokens; bounded if the cache grows
  bool by_page = false;  // evicts when a page is full: the page size defines the result
};

inline constexpr const char* kPinAtStart = "0-6";

struct Combination {
  std::string policy, mechanism, positions, way;  // way: how cache positions are kept; empty: original
  std::string variant = {};                       // options of the policy and of merging; empty: the defaults
  Timing timing;
  int page_size = 16;
  CacheTypes type = CacheType::kF32;
  Path path = Path::kFast;
  int sequences = 1;
  std::string split = {};  // "pyramid", "ada", or a file of budgets by layer and head; empty: uniform
  std::string pin = {};    // spans of positions; empty: none
  int threads = 1;

  std::string method() const;    // for parse_method
  std::string name() const;      // one line, all choices
  std::string result() const;    // combinations with equal strings must give equal results
  Combination baseline() const;  // double-precision reference, in place, pages of 16, one sequence
  bool exists() const;           // two-query needs a window, and so on
  bool block() const { return mechanism == "block"; }
  bool merges() const { return mechanism.starts_with("merge"); }  // merge-own: tokens keep their own positions
  int budget() const;
  bool pins_at_start_only() const { return pin.empty() || pin == kPinAtStart; }
  bool windowed() const { return (policy == "recent" || policy == "none") && !block() && pins_at_start_only(); }
  bool scored() const {
    return policy != "none" && policy != "recent" && policy != "random";
  }  // scores depend on the model's numbers
  bool stock_operators() const { return path == Path::kPortable || path == Path::kVulkan || path == Path::kRpc; }
  bool rotated() const { return positions == "original" || way == "two-query"; }  // as stored
  // Keys are rotated again, and rounded, at each move.
  bool rerotated() const { return way == "delta"; }
  // Keys are rotated into a copy of the cache's type. Other devices rotate in each step anyway, in f32.
  bool copied() const { return way == "recompute" && (path == Path::kReference || path == Path::kFast); }
};

inline constexpr int kBudget = 48, kAll = 1 << 30;

// Without q8_0, which needs head widths that are a multiple of 32.
inline const std::vector<CacheTypes> kTypes = {CacheType::kF32, CacheType::kF16, CacheType::kBF16};
// Of 8 bits and fewer, in groups of 32 dimensions.
inline const std::vector<CacheTypes> kTypesOfBytes = {
    CacheType::kQ8_0, CacheType::kQ4, CacheType::kQ3, CacheType::kQ2, {CacheType::kQ4, CacheType::kQ2}};
// Keys and values of different types. (All pairs: tests/cache, tests/attention, tests/graph/plain_model_test.)
inline const std::vector<CacheTypes> kMixedTypes = {{CacheType::kQ8_0, CacheType::kF16},
                                                    {CacheType::kF16, CacheType::kQ8_0},
                                                    {CacheType::kBF16, CacheType::kF32},
                                                    {CacheType::kF32, CacheType::kBF16}};

std::string name_of(Path path);
std::vector<std::string> device_policies();  // policies of the grid that run with stock operators

// All that exist on these paths, in a fixed order. `split`: the file of budgets by layer and head.
std::vector<Combination> all_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                          const std::string& split);
// A random choice of each kind; nothing if these do not exist together. The list of all takes seconds to make.
std::optional<Combination> drawn_combination(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                             const std::string& split, std::mt19937& random);
// All combinations of the other choices; page size, number of sequences, threads and split are interleaved.
std::vector<Combination> covering_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                               const std::string& split);

}  // namespace palimpsest::testing
