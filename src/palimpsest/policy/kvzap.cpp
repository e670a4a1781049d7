// A scorer trained on KVzip's scores predicts them without reading the prompt twice (KVzap, arXiv 2601.07891). The
// paper's input is the layer's hidden state; here it is the token's key and value, which are linear maps of the normed
// hidden state, and their norms. The target is the logarithm of the max attention while the model repeats the text
// (`palimpsest fit`).
#include "palimpsest/policy/linear_scorer.h"

namespace palimpsest {
namespace {

struct KvZap final : LinearScorer {
  KvZap() : LinearScorer(kKvZapFormat) {}
};

}  // namespace

PALIMPSEST_POLICY(kvzap, KvZap, "KVzip's scores, predicted from key and value (KVzap, arXiv 2601.07891)")

}  // namespace palimpsest
