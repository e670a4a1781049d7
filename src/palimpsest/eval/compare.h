// Compares the logits of several sessions step by step over one text.
#pragma once

#include <span>
#include <vector>

#include "palimpsest/engine/sequence/session.h"

namespace palimpsest {

struct Comparison {
  double max_difference = 0;          // max over all steps of max |a - b| / max |a|
  long long max_difference_step = 0;  // the step of that maximum
  double mean_kl = 0;                 // nats
  long long steps = 0, same_top = 0;
  long long flipped =
      0;  // steps with another top token although the top two differ by more than `tolerance` (relative)
};

// Decodes `tokens` one at a time, teacher-forced, in all sessions; compares each of `others` with `reference`.
std::vector<Comparison> compare(Session& reference, std::span<Session* const> others, std::span<const TokenId> tokens,
                                double tolerance, const Session::Progress& progress = {});

}  // namespace palimpsest
