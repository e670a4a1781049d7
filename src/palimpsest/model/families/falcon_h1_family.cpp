#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_state_heads.h"

namespace palimpsest {

const Family kFalconH1Family = {
    .architecture = "falcon-h1",
    .models = "Falcon H1",
    .bare_feed_forward_norm = true,
    .recurrence = Recurrence::kMamba2,
    .recurrent_beside_attention = true,
    .gated_norm = Presence::kOptional,
    .read = [](const ArchMetadata& keys, Hyperparameters& h) { read_state_heads(keys, h, true); },
    .tiny = {.convolution_taps = 4, .state_heads = {.heads = 8, .head_dim = 64, .groups = 2, .state_width = 32}},
};

}  // namespace palimpsest
