#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// ALiBi; scores are divided by the width of a head, not by its root.
const Family kJaisFamily = {
    .architecture = "jais",
    .models = "Jais",
    .rope = RopeKind::kNone,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .packed_qkv = true,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward_bias = Presence::kYes,
    .output = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          const LayerGeometry& g = h.geometry.layer(0);
          const double bias = keys.number("attention.max_alibi_bias", 0, 0, 1e3);
          if (bias > 0) h.alibi = alibi_slopes(g.query_heads, bias);
          h.attention_scale = 1 / static_cast<float>(g.key_width);
        },
    .tiny = {.tied = false, .keys = {{"attention.max_alibi_bias", ExtraKey::Type::kNumber, 8}}},
};

const Family kJais2Family = {
    .architecture = "jais2",
    .models = "Jais 2",
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
    .feed_forward_bias = Presence::kYes,
};

}  // namespace palimpsest
