#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "research/speed/machine.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "research/speed/machine.h"

HWY_BEFORE_NAMESPACE();
namespace palimpsest::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

float ReadAll(const void* data, std::size_t bytes) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const auto* at = static_cast<const std::uint32_t*>(data);
  const auto* const end = at + bytes / 4;
  auto a = hn::Zero(d), b = a, c = a, e = a;
  const std::size_t n = hn::Lanes(d);
  for (; at < end; at += 4 * n) {
    a = hn::Xor(a, hn::LoadU(d, at));
    b = hn::Xor(b, hn::LoadU(d, at + n));
    c = hn::Xor(c, hn::LoadU(d, at + 2 * n));
    e = hn::Xor(e, hn::LoadU(d, at + 3 * n));
  }
  return static_cast<float>(hn::GetLane(hn::Xor(hn::Xor(a, b), hn::Xor(c, e))));
}

double MultiplyAdd(std::size_t rounds, float* result) {
  const hn::CappedTag<float, 16> d;
  const auto x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  const auto start = [&](float v) HWY_ATTR { return hn::Set(d, v); };  // all different: equal chains would be one
  auto a = start(1), b = start(2), c = start(3), e = start(4), f = start(5), g = start(6), h = start(7), i = start(8),
       j = start(9), k = start(10);
  for (std::size_t r = 0; r < rounds; ++r) {
    a = hn::MulAdd(a, x, y), b = hn::MulAdd(b, x, y), c = hn::MulAdd(c, x, y), e = hn::MulAdd(e, x, y);
    f = hn::MulAdd(f, x, y), g = hn::MulAdd(g, x, y), h = hn::MulAdd(h, x, y), i = hn::MulAdd(i, x, y);
    j = hn::MulAdd(j, x, y), k = hn::MulAdd(k, x, y);
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(hn::Add(f, g), hn::Add(h, i))), hn::Add(j, k));
  *result = hn::ReduceSum(d, sum);
  return static_cast<double>(rounds) * 10 * 2 * static_cast<double>(hn::Lanes(d));
}

void StreamCopy(void* to, const void* from, std::size_t bytes) {
  const hn::CappedTag<std::uint32_t, 16> d;
  const std::size_t n = hn::Lanes(d);
  const auto* source = static_cast<const std::uint32_t*>(from);
  auto* target = static_cast<std::uint32_t*>(to);
  for (const auto* const end = source + bytes / 4; source < end; source += n, target += n)
    hn::Stream(hn::LoadU(d, source), d, target);
  hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace palimpsest::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace palimpsest::bench {
HWY_EXPORT(ReadAll);
HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(StreamCopy);
float read_all(const void* data, std::size_t bytes) {
  return HWY_DYNAMIC_DISPATCH(ReadAll)(data, bytes);
}
double multiply_add(std::size_t rounds, float* result) {
  return HWY_DYNAMIC_DISPATCH(MultiplyAdd)(rounds, result);
}
void stream_copy(void* to, const void* from, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(StreamCopy)(to, from, bytes);
}
}  // namespace palimpsest::bench
#endif
