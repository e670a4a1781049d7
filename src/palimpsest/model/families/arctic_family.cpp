#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// A dense feed-forward of the model's width after attention; beside it a mixture that reads the layer's input.
const Family kArcticFamily = {
    .architecture = "arctic",
    .models = "Snowflake Arctic",
    .rope = RopeKind::kPairs,
    .experts = Presence::kYes,
    .shared_experts_end = "",
    .experts_of_layer_input = true,
    .read = [](const ArchMetadata&, Hyperparameters& h) { h.shared_feed_forward = h.width; },
    .tiny = {.experts = 8, .experts_used = 2, .shared_feed_forward = 256},
};

}  // namespace palimpsest
