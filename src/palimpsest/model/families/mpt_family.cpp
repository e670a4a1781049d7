#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// ALiBi or, rarely, learned positions; queries, keys and values may be clamped; queries and keys may be normed over all
// heads.
const Family kMptFamily = {
    .architecture = "mpt",
    .models = "MPT",
    .rope = RopeKind::kNone,
    .learned_positions = Presence::kOptional,
    .norm = Norm::kLayer,
    .norm_bias = Presence::kOptional,
    .qk_norm = QkNorm::kAllHeads,
    .qk_norm_presence = Presence::kOptional,
    .qk_norm_bias = Presence::kOptional,
    .packed_qkv = true,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kGelu,
    .feed_forward_bias = Presence::kOptional,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          const double bias = keys.number("attention.max_alibi_bias", 0, 0, 1e3);
          if (bias > 0) h.alibi = alibi_slopes(h.geometry.layer(0).query_heads, bias);
          h.clamp_qkv = static_cast<float>(keys.number("attention.clamp_kqv", 0, 0, 1e9));
        },
    .tiny = {.query_heads = 6,  // not a power of two: interleaved slopes
             .kv_heads = 6,
             .width = 192,
             .keys = {{"attention.max_alibi_bias", ExtraKey::Type::kNumber, 8},
                      {"attention.clamp_kqv", ExtraKey::Type::kNumber, 2}}},
};

}  // namespace palimpsest
