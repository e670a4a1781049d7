// The choices that a policy's paper ablates or that its implementations differ in: options of the method
// (evict/method.h). A policy has those that Policy::option_names() lists; others are refused (evict/legality.h).
#pragma once

namespace palimpsest {

struct PolicyOptions {
  // EMS (arXiv 2412.08521, table 4): which attention is the score.
  enum class Score { kAuto, kGlobal, kLocal, kBoth };
  // How a score is smoothed over neighbours in the text (policy/pool.h).
  enum class Pooling { kAuto, kAverage, kMax, kNone };

  // kAuto and 0: the policy's own, as in its paper.
  Score score = Score::kAuto;
  int window = 0;  // queries whose attention is the local score
  Pooling pooling = Pooling::kAuto;
  int kernel = 0;  // neighbours, odd

  bool operator==(const PolicyOptions&) const = default;
};

}  // namespace palimpsest
