#include "palimpsest/engine/speculation/speculation.h"

#include <algorithm>

namespace palimpsest {

int Speculation::wanted() {
  if (!options_.adaptive) return options_.max;
  if (options_.timed && times_.begin()) return 0;
  const int length = length_.next();
  return length == 0 && options_.timed && times_.due() ? 1 : length;
}

std::span<const TokenId> Speculation::draft(long long max) {
  const int wanted = static_cast<int>(std::min<long long>(this->wanted(), max));
  std::span<const TokenId> drafts;
  if (wanted >= std::max(1, options_.min)) drafts = drafter_->draft(wanted);
  if (options_.timed) times_.drafted(std::ssize(drafts));
  return std::ssize(drafts) < options_.min ? std::span<const TokenId>() : drafts;
}

void Speculation::verified(int drafts, int accepted) {
  if (options_.timed) {
    times_.read(drafts);
    if (const auto price = times_.price()) length_.set_price(DraftPrice(*price));
  }
  if (drafts == 0) return;
  length_.add(drafts, accepted);
  ++counts_.steps;
  counts_.drafts += drafts;
  counts_.accepted += accepted;
}

}  // namespace palimpsest
