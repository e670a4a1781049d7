#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Long and short divisors of the frequencies (hyperparameters.cpp). A sliding window in the metadata is not heeded, as
// libllama does not: the first models were trained with it on and published with it off.
const Family kPhi3Family = {
    .architecture = "phi3",
    .models = "Phi 3, 3.5 and 4",
    .packed_qkv = true,
    .feed_forward = FeedForward::kPackedGate,
    .tiny = {.tied = false},
};

}  // namespace palimpsest
