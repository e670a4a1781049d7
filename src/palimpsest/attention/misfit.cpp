#include "palimpsest/attention/misfit.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace palimpsest {

void Misfits::report(const Misfit& misfit) {
  const auto order = [](const Misfit& m) { return std::tuple(m.token, m.layer, m.kv_head, m.value); };
  const std::lock_guard lock(mutex_);
  any_ = true;
  const auto known = std::ranges::find(first_, misfit.sequence, &Misfit::sequence);
  if (known == first_.end()) {
    first_.push_back(misfit);
  } else if (order(misfit) < order(*known)) {
    *known = misfit;
  } else if (order(misfit) == order(*known) && (std::isnan(misfit.magnitude) || misfit.magnitude > known->magnitude)) {
    known->magnitude = misfit.magnitude;
  }
}

std::optional<Misfit> Misfits::of(int sequence) const {
  const auto known = std::ranges::find(first_, sequence, &Misfit::sequence);
  if (known == first_.end()) return std::nullopt;
  return *known;
}

}  // namespace palimpsest
