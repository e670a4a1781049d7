// The grid: every combination of the choices that may not change a result, and of those that name the result.
//
//   names the result     policy, schedule, kind of positions (chunks too, unless the policy is sinks + window); of a
//                        two-byte cache also its types, and whether keys are stored rotated: they are rounded
//   may not change it    mechanism (but `block`, which names it with the page size), way to keep positions, page size,
//   path, threads, how many sequences step together
//
// Budgets by layer and head name the result too: of a file, of a pyramid of layers, by the heads' scores (ada). So does
// merging, which changes keys and values.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/evict/method.h"

namespace palimpsest::testing {

enum class Path { kReference, kFast, kPortable, kVulkan };

struct Timing {
  std::string options;   // of the method
  int prompt = 1;        // tokens that are read as a prompt; the others one by one
  int chunk = 1;         // tokens of a step of the prompt
  int max = 1 << 30;     // tokens in all: where the cache grows
  bool by_page = false;  // evictions come when a page is full: its size names the result
};

struct Combination {
  std::string policy, mechanism, positions, way;  // way: how cache positions are kept; empty: original
  Timing timing;
  int page_size = 16;
  CacheTypes type = CacheType::kF32;
  Path path = Path::kFast;
  int sequences = 1;
  std::string split = {};  // "pyramid", "ada", or a file of budgets by layer and head; empty: all have the same
  int threads = 1;

  std::string method() const;    // for parse_method
  std::string name() const;      // one line, all choices
  std::string result() const;    // combinations with the same must give the same
  Combination baseline() const;  // the reference in double precision, in place, pages of 16, alone
  bool exists() const;           // two-query needs a window, and so on
  bool block() const { return mechanism == "block"; }
  bool merges() const { return mechanism.starts_with("merge"); }  // merge-own: tokens keep their own positions
  int budget() const;
  bool windowed() const { return (policy == "recent" || policy == "none") && !block(); }
  bool scored() const {
    return policy != "none" && policy != "recent" && policy != "random";
  }                                                                               // by the model's numbers
  bool rotated() const { return positions == "original" || way == "two-query"; }  // keys are, as they are stored
  // Keys are rotated into a copy of the cache's type. Other devices rotate anew in each step anyway, in f32.
  // ... and turned again whenever they move, with a rounding each time.
  bool rerotated() const { return way == "delta"; }
  bool copied() const { return way == "recompute" && (path == Path::kReference || path == Path::kFast); }
};

inline constexpr int kBudget = 48, kAll = 1 << 30;

// q8_0 takes heads of a multiple of 32 dimensions, and has the CPU's own kernels only.
inline const std::vector<CacheTypes> kTypes = {CacheType::kF32, CacheType::kF16, CacheType::kBF16};
// Keys of one type, values of another. (All pairs: tests/cache, tests/attention, tests/model/plain_model_test.)
inline const std::vector<CacheTypes> kMixedTypes = {{CacheType::kQ8_0, CacheType::kF16},
                                                    {CacheType::kF16, CacheType::kQ8_0},
                                                    {CacheType::kBF16, CacheType::kF32},
                                                    {CacheType::kF32, CacheType::kBF16}};

std::string name_of(Path path);

// Those that exist, of the paths asked for; in a fixed order. `split`: the file for those whose heads differ.
std::vector<Combination> all_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                          const std::string& split);
// Every combination of the other choices with one page size, one number of sequences, of threads and one split each,
// interleaved.
std::vector<Combination> covering_combinations(const std::vector<Path>& paths, const std::vector<CacheTypes>& types,
                                               const std::string& split);

}  // namespace palimpsest::testing
