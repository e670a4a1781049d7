#include "palimpsest/graph/cpu/scan_rows.h"

#include <cassert>

#include "palimpsest/core/types.h"
#include "palimpsest/core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "palimpsest/graph/cpu/scan_rows.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using ScanTag = hn::CappedTag<float, StateHeads::kLanes>;

// kRows rows at once share the loads of key and query, and hide the latency of the additions.
template <int kRows>
HWY_INLINE void scan_some(const ScanRows& s, int row) {
  const ScanTag d;
  const std::size_t lanes = hn::Lanes(d), width = at(s.width);
  const float* const before = s.before + at(row) * width;
  float* const after = s.after + at(row) * width;
  const auto decay = hn::Set(d, s.decay);
  hn::Vec<ScanTag> input[kRows], sum[kRows];
  if (s.delta) {
    for (auto& each : sum) each = hn::Zero(d);
    for (std::size_t k = 0; k < width; k += lanes) {
      const auto key = hn::LoadU(d, s.key + k);
      for (int i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::LoadU(d, before + at(i) * width + k), key, sum[i]);
    }
    for (int i = 0; i < kRows; ++i)
      input[i] = hn::Set(d, s.factor * (s.input[row + i] - hn::ReduceSum(d, sum[i]) * s.decay));
  } else {
    for (int i = 0; i < kRows; ++i) input[i] = hn::Set(d, s.factor * s.input[row + i]);
  }
  for (auto& each : sum) each = hn::Zero(d);
  for (std::size_t k = 0; k < width; k += lanes) {
    const auto key = hn::LoadU(d, s.key + k), query = hn::LoadU(d, s.query + k);
    for (int i = 0; i < kRows; ++i) {
      const auto next = hn::MulAdd(hn::LoadU(d, before + at(i) * width + k), decay, hn::Mul(key, input[i]));
      hn::StoreU(next, d, after + at(i) * width + k);
      sum[i] = hn::MulAdd(next, query, sum[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) s.out[row + i] = hn::ReduceSum(d, sum[i]);
}

void StepRows(const ScanRows& s) {
  int row = 0;
  for (; row + 4 <= s.rows; row += 4) scan_some<4>(s, row);
  for (; row < s.rows; ++row) scan_some<1>(s, row);
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest {

HWY_EXPORT(StepRows);

void scan_rows(const ScanRows& scan) {
  assert(scan.width % StateHeads::kLanes == 0);
  HWY_DYNAMIC_DISPATCH(StepRows)(scan);
}

void scan_rows_reference(const ScanRows& s) {
  for (int row = 0; row < s.rows; ++row) {
    const float* const before = s.before + at(row) * at(s.width);
    float* const after = s.after + at(row) * at(s.width);
    double input = s.input[row], out = 0;
    for (int k = 0; s.delta && k < s.width; ++k) input -= double{before[k]} * s.decay * s.key[k];
    for (int k = 0; k < s.width; ++k) {
      const double next = double{before[k]} * s.decay + s.key[k] * input * s.factor;
      out += next * s.query[k];
      after[k] = static_cast<float>(next);
    }
    s.out[row] = static_cast<float>(out);
  }
}

}  // namespace palimpsest
#endif
