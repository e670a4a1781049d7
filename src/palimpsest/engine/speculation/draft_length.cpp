#include "palimpsest/engine/speculation/draft_length.h"

#include <algorithm>

namespace palimpsest {

int DraftLength::best(double acceptance) const {
  int best = 0;
  double gain = 1, tokens = 1, chance = 1;
  for (int n = 1; n <= max_; ++n) {
    tokens += chance *= acceptance;
    if (const double rate = tokens / (1 + price_.of(n)); rate > gain) gain = rate, best = n;
  }
  return best;
}

int DraftLength::next() {
  constexpr int kMaxPause = 256;
  if (const int length = best(acceptance()); length > 0) {
    pause_ = 16;
    left_ = 0;
    return length;
  }
  if (left_-- > 0) return 0;
  left_ = pause_;
  pause_ = std::min(2 * pause_, kMaxPause);
  return std::min(1, best(1));
}

void DraftLength::add(int drafts, int accepted) {
  accepted_ = 0.9 * accepted_ + accepted;
  rejected_ = 0.9 * rejected_ + (accepted < drafts ? 1 : 0);
}

}  // namespace palimpsest
