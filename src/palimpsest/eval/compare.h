// Two or more ways to carry one method out, step by step over one text: do they give the same logits?
#pragma once

#include <span>
#include <vector>

#include "palimpsest/engine/session.h"

namespace palimpsest {

struct Comparison {
  double greatest = 0;          // over all steps: greatest |a - b| of a step over its greatest |a|
  long long greatest_step = 0;  // where that was
  double mean_kl = 0;           // nats
  long long steps = 0, same_top = 0;
  long long flipped = 0;  // another top token although the best two were further apart than `tolerance` (relative)
};

// Decodes `tokens` one at a time, teacher-forced, in all sessions; each of `others` is held against `reference`.
std::vector<Comparison> compare(Session& reference, std::span<Session* const> others, std::span<const TokenId> tokens,
                                double tolerance, const Session::Progress& progress = {});

}  // namespace palimpsest
