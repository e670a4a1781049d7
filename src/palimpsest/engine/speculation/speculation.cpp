#include "palimpsest/engine/speculation/speculation.h"

#include <algorithm>

namespace palimpsest {

std::span<const TokenId> Speculation::draft(long long max) {
  const int wanted = static_cast<int>(std::min<long long>(options_.adaptive ? length_.next() : options_.max, max));
  if (wanted < std::max(1, options_.min)) return {};
  const auto drafts = drafter_->draft(wanted);
  return std::ssize(drafts) < options_.min ? std::span<const TokenId>() : drafts;
}

void Speculation::verified(int drafts, int accepted) {
  if (drafts == 0) return;
  length_.add(drafts, accepted);
  ++counts_.steps;
  counts_.drafts += drafts;
  counts_.accepted += accepted;
}

}  // namespace palimpsest
