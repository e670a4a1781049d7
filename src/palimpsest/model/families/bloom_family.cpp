#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// ALiBi; a norm of the embedding.
const Family kBloomFamily = {
    .architecture = "bloom",
    .models = "BLOOM",
    .rope = RopeKind::kNone,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kYes,
    .embedding_norm = Presence::kYes,
    .packed_qkv = true,
    .qkv_bias = Presence::kYes,
    .attention_bias = Presence::kYes,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kYes,
    .read = [](const ArchMetadata&,
               Hyperparameters& h) { h.alibi = alibi_slopes(h.geometry.layer(0).query_heads, 8.0); },
    .tiny = {.kv_heads = 8},
};

}  // namespace palimpsest
