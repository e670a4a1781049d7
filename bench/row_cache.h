// The cache as the papers' code keeps it, for comparison: K and V as tensors [sequences * heads][tokens][dims] with
// rows that follow one another, and the ways in which that code lets tokens go and takes new ones.
//
//   shift    StreamingLLM: torch.cat of sinks, survivors (and new rows) into another tensor
//   gather   H2O: the kept rows of each head, by index, into another tensor
//   passes   1: the new rows go into the same tensor as the survivors; 2: as the reference codes do, first a tensor of
//            the survivors (evict), then one with the new rows at its end (append)
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "bench/team.h"

namespace palimpsest::bench {

enum class Target {
  kFresh,      // a new tensor each time, as PyTorch has it: the system gives its pages when they are first written
  kFreshHuge,  // the same with huge pages asked for
  kReused,     // a second tensor that is kept: no allocation
  kStreamed,   // the same, written past the caches (non-temporal stores)
};

class RowCache {
 public:
  RowCache(int heads, int tokens, std::size_t row_bytes);

  struct Step {
    int sinks, victims;              // shift: victims are those after the sinks
    const int* kept = nullptr;       // gather: [heads][tokens - victims], ascending
    const int* slots = nullptr;      // overwrite: [heads][victims]
    const std::byte* new_rows[2]{};  // [heads][victims] rows of K and of V
  };
  void shift(Team& team, const Step& step, Target target, int passes);
  void gather(Team& team, const Step& step, Target target, int passes);
  void slide(Team& team, const Step& step);  // shift inside one tensor (memmove): never allocates
  // EQUIP: the new rows into the victims' places, which move on with every call as a ring's do.
  void overwrite(Team& team, const Step& step);

  const std::byte* row(int tensor, int head, int token) const;  // 0: K, 1: V

 private:
  struct Release {
    std::size_t mapped;  // 0: from malloc
    void operator()(std::byte* p) const;
  };
  using Tensor = std::unique_ptr<std::byte[], Release>;
  Tensor make(std::size_t bytes, Target target) const;
  template <class Evict>
  void renew(Team& team, const Step& step, Target target, int passes, const Evict& evict);
  template <class Body>
  void each_head(Team& team, const Body& body) const;

  int heads_, tokens_, moved_ = 0;
  std::size_t row_;
  Tensor tensor_[2], spare_;
};

}  // namespace palimpsest::bench
