// The kernels of a cache type, of one instruction set: kKernels<T>, for elements of type T.

#if defined(PALIMPSEST_ATTENTION_KERNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PALIMPSEST_ATTENTION_KERNELS_INL_H_
#undef PALIMPSEST_ATTENTION_KERNELS_INL_H_
#else
#define PALIMPSEST_ATTENTION_KERNELS_INL_H_
#endif

#include "palimpsest/attention/attend-inl.h"
#include "palimpsest/attention/classes-inl.h"
#include "palimpsest/attention/columns-inl.h"
#include "palimpsest/attention/insert-inl.h"
#include "palimpsest/attention/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void put_tokens(const HeadWork& w, int slot_begin, int slot_end, const UnitMemory& memory) {
  if constexpr (kIsScaled<T>)
    insert_scaled(w, slot_begin, slot_end, memory);
  else
    insert<T>(w, slot_begin, slot_end, memory);
}

template <class T>
void insert_unit(const HeadWork& w, int unit, const UnitMemory& memory) {
  const SlotRange range = insert_range(w, unit);
  put_tokens<T>(w, range.begin, range.end, memory);
}

template <class T>
void rotate_unit(const HeadWork& w, int unit, const UnitMemory& memory) {
  if (w.insert_units == 0) put_tokens<T>(w, unit * kSplit, (unit + 1) * kSplit, memory);
  if constexpr (!kIsScaled<T>) rotate<T>(w, unit, memory);
}

template <class T>
void attend_unit_of(const HeadWork& w, int query_block, int split, const UnitMemory& memory) {
  const int begin = w.splits > 1 ? split * kSplit : 0, end = w.splits > 1 ? begin + kSplit : w.slots().slots;
  if (w.insert_units == 0 && w.rotate_units == 0) put_tokens<T>(w, begin, end, memory);
  if (w.merged != nullptr)
    attend_classes<T>(w, query_block, memory);
  else
    attend<T>(w, query_block, split, memory);
}

template <class T>
inline constexpr Kernels kKernels = {insert_unit<T>, rotate_unit<T>, attend_unit_of<T>, column_sums<T>};

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest
HWY_AFTER_NAMESPACE();

#endif
