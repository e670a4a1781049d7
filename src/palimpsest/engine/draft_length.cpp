#include "palimpsest/engine/draft_length.h"

#include <algorithm>

namespace palimpsest {

int DraftLength::next() {
  constexpr int kMaxPause = 256;
  int best = 0;
  double gain = 1, tokens = 1, chance = 1;
  for (int n = 1; n <= max_; ++n) {
    tokens += chance *= acceptance();
    if (const double rate = tokens / (1 + cost_ * n); rate > gain) gain = rate, best = n;
  }
  if (best > 0) {
    pause_ = 16;
    left_ = 0;
    return best;
  }
  if (left_-- > 0) return 0;
  left_ = pause_;
  pause_ = std::min(2 * pause_, kMaxPause);
  return std::min(1, max_);
}

void DraftLength::add(int drafts, int accepted) {
  stood_ = 0.9 * stood_ + accepted;
  fell_ = 0.9 * fell_ + (accepted < drafts ? 1 : 0);
}

}  // namespace palimpsest
