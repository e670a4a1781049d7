#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Long and short RoPE factors (hyperparameters.cpp). A sliding window in the metadata is ignored, as in libllama: the
// first models were trained with a window and published without.
const Family kPhi3Family = {
    .architecture = "phi3",
    .models = "Phi 3, 3.5 and 4",
    .limits = "Phi 3.5 MoE, images",
    .packed_qkv = true,
    .feed_forward = FeedForward::kPackedGate,
    .tiny = {.tied = false},
};

}  // namespace palimpsest
