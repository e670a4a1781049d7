#include "palimpsest/core/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <numbers>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// 2*pi as a sum of three doubles: multiples of it up to 2^53 are then known to 1e-17.
constexpr double kTwoPi1 = 0x1.921fb54442d18p+2, kTwoPi2 = 0x1.1a62633145c07p-52, kTwoPi3 = -0x1.f1976b7ed8fbcp-108;

// YaRN's ramp (arXiv 2309.00071, section 3.2), with ggml's rounding of its two ends: pairs before `low` rotate many
// times within the original context and keep their frequency, pairs after `high` are interpolated.
struct YarnRamp {
  float low, high;

  static float pair_of(const RopeOptions& o, double rope_tiles) {
    const float context = static_cast<float>(o.original_context), dims = static_cast<float>(o.dims);
    const float period = static_cast<float>(rope_tiles) * 2 * std::numbers::pi_v<float>;
    return dims * std::log(context / period) / (2 * std::log(static_cast<float>(o.base)));
  }
  explicit YarnRamp(const RopeOptions& o)
      : low(std::max(0.0f, std::floor(pair_of(o, o.yarn_beta_fast)))),
        high(std::min(static_cast<float>(o.dims - 1), std::ceil(pair_of(o, o.yarn_beta_slow)))) {}

  // 1: the original frequency, 0: the interpolated one.
  double keep(int pair) const {
    const double y = (pair - static_cast<double>(low)) / std::max(0.001, static_cast<double>(high) - low);
    return 1 - std::clamp(y, 0.0, 1.0);
  }
};

void check(const RopeOptions& o) {
  if (o.dims <= 0 || o.dims % 2 != 0) fail("rotary dimensions must be even and positive, not {}", o.dims);
  if (!(o.base > 0)) fail("rotary base must be positive, not {}", o.base);
  if (!(o.linear_scale > 0)) fail("rotary position scale must be positive, not {}", o.linear_scale);
  if (!o.factors.empty() && o.factors.size() != static_cast<std::size_t>(o.dims / 2))
    fail("{} rotary frequency factors for {} pairs: the model file contradicts itself", o.factors.size(), o.dims / 2);
  for (float factor : o.factors)
    if (!(factor > 0)) fail("a rotary frequency factor is {}: factors must be positive", factor);
  if (o.yarn_ext_factor != 0 && o.original_context <= 0)
    fail("YaRN needs the original context length; it is {}", o.original_context);
}

}  // namespace

RopeFrequencies::RopeFrequencies(const RopeOptions& options)
    : kind_(options.kind), dims_(options.kind == RopeKind::kNone ? 0 : options.dims) {
  if (kind_ == RopeKind::kNone) return;
  check(options);
  const bool yarn = options.yarn_ext_factor != 0;
  magnitude_ = options.yarn_attn_factor * (yarn ? 1 + 0.1 * std::log(options.linear_scale) : 1.0);
  frequency_.resize(static_cast<std::size_t>(pairs()));
  for (int i = 0; i < pairs(); ++i) {
    const auto index = static_cast<std::size_t>(i);
    const long double exponent = -2.0L * i / dims_;
    double original = static_cast<double>(std::pow(static_cast<long double>(options.base), exponent));
    if (!options.factors.empty()) original /= options.factors[index];
    const double interpolated = original / options.linear_scale;
    const double keep = yarn ? YarnRamp(options).keep(i) * options.yarn_ext_factor : 0;
    frequency_[index] = interpolated * (1 - keep) + original * keep;
  }
}

// position * frequency - k * 2*pi, each product as an exact sum of two doubles: the difference of two angles is the
// angle of the difference, for positions up to 2^53.
double RopeFrequencies::angle(Position position, int pair) const {
  assert(pair >= 0 && pair < pairs());
  const double p = static_cast<double>(position), f = frequency_[static_cast<std::size_t>(pair)];
  const double high = p * f, low = std::fma(p, f, -high);
  const double k = std::nearbyint(high / kTwoPi1);
  const double rope_tiles = k * kTwoPi1, rotations_low = std::fma(k, kTwoPi1, -rope_tiles);
  const double second = k * kTwoPi2, second_low = std::fma(k, kTwoPi2, -second);
  const double rest = (high - rope_tiles) + ((low - rotations_low) - second) - (second_low + k * kTwoPi3);
  // k was rounded from `high` alone and may be off by one.
  const double nearest = rest - kTwoPi1 * std::nearbyint(rest / kTwoPi1);
  return std::clamp(nearest, -std::numbers::pi, std::numbers::pi);
}

void RopeFrequencies::row(Position position, float* cos_sin) const {
  for (int i = 0; i < pairs(); ++i) {
    const double a = angle(position, i);
    cos_sin[i] = static_cast<float>(magnitude_ * std::cos(a));
    cos_sin[pairs() + i] = static_cast<float>(magnitude_ * std::sin(a));
  }
}

}  // namespace palimpsest
