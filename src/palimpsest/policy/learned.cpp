// A scorer trained on this model's attention predicts a token's future attention from its key and value (the sparse
// eviction paper names a learned policy without describing it). The target is the square root of the mean attention
// over the rest of the text (`palimpsest fit`). Policy `temporal` adds time and attention.
#include "palimpsest/policy/linear_scorer.h"

namespace palimpsest {
namespace {

struct Learned final : LinearScorer {
  Learned() : LinearScorer(kLearnedFormat) {}
};

}  // namespace

PALIMPSEST_POLICY(learned, Learned, "score of a small network trained on this model's attention")

}  // namespace palimpsest
