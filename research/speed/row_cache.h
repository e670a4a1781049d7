// The cache of the papers' reference code, for comparison: K and V as tensors [sequences * heads][tokens][dims] with
// contiguous rows, and that code's operations for eviction and insertion.
//
//   shift    StreamingLLM: torch.cat of sinks, kept rows (and new rows) into another tensor
//   gather   H2O: gathers the kept rows of each head by index into another tensor
//   passes   1: kept and new rows are written to one tensor; 2, as in the reference code: a tensor of the kept rows
//            (evict), then one with the new rows appended
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "research/speed/team.h"

namespace palimpsest::bench {

enum class Target {
  kNewTensor,      // a new tensor each time, as in PyTorch: first writes cause page faults
  kNewTensorHuge,  // the same with huge pages (MADV_HUGEPAGE)
  kReused,         // a second tensor that is reused: no allocation
  kStreamed,       // the same, written with non-temporal stores
};

class RowCache {
 public:
  RowCache(int heads, int tokens, std::size_t row_bytes);

  struct Step {
    int sinks, victims;              // shift: victims are the tokens after the sinks
    const int* kept = nullptr;       // gather: [heads][tokens - victims], ascending
    const int* slots = nullptr;      // overwrite: [heads][victims]
    const std::byte* new_rows[2]{};  // [heads][victims] rows of K and of V
  };
  void shift(Team& team, const Step& step, Target target, int passes);
  void gather(Team& team, const Step& step, Target target, int passes);
  void slide(Team& team, const Step& step);  // shift within one tensor (memmove), without allocation
  // EQUIP: writes the new rows into the victims' slots, which advance with every call as in a ring buffer.
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
  void rebuild(Team& team, const Step& step, Target target, int passes, const Evict& evict);
  template <class Body>
  void each_head(Team& team, const Body& body) const;

  int heads_, tokens_, moved_ = 0;
  std::size_t row_;
  Tensor tensor_[2], spare_;
};

}  // namespace palimpsest::bench
