// One token's step of a head's recurrent state, for some of its rows (graph/cpu/scan.h).
#pragma once

#include "palimpsest/model/family.h"

namespace palimpsest {

// Rows of [width] floats, a multiple of StateHeads::kLanes; `after` may be `before`.
//
//   Mamba-2      after = before * decay + key * input[row] * factor
//   delta rule   after = before * decay, then + key * factor * (input[row] - after . key)
//   both         out[row] = after . query
struct ScanRows {
  const float* before = nullptr;
  float* after = nullptr;
  int rows = 0, width = 0;
  const float *key = nullptr, *query = nullptr;  // [width]
  const float* input = nullptr;                  // [rows]
  float decay = 1, factor = 1;
  bool delta = false;
  float* out = nullptr;  // [rows]
};

// With the widest vectors of the CPU. A row's result does not depend on the other rows.
void scan_rows(const ScanRows& scan);
// The same in double precision, by plain loops: the oracle of tests.
void scan_rows_reference(const ScanRows& scan);

}  // namespace palimpsest
