#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

const Family kErnie45Family = {
    .architecture = "ernie4_5",
    .models = "ERNIE 4.5, dense",
    .rope = RopeKind::kPairs,
};

// For text, the rotary dimensions of time, height and width have the same position.
const Family kPaddleOcrFamily = {
    .architecture = "paddleocr",
    .models = "PaddleOCR VL",
    .limits = "images",
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .tiny = {.keys = {{"rope.dimension_sections", ExtraKey::Type::kSigned, 8}}},
};

// The first layers are dense.
const Family kErnie45MoeFamily = {
    .architecture = "ernie4_5-moe",
    .models = "ERNIE 4.5, mixtures of experts",
    .limits = "images",
    .rope = RopeKind::kPairs,
    .experts = Presence::kYes,
    .selection_bias = Presence::kOptional,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          h.leading_dense = keys.optional("leading_dense_block_count", 0, ArchMetadata::kMax, 0);
          if (const int step = keys.required("interleave_moe_layer_step", 4096); step != 1)
            fail("{}: a mixture in one of {} layers is not supported; use another model", keys.file().path(), step);
          h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", 0, ArchMetadata::kMax, 0);
        },
    .tiny = {.layers = 3,
             .experts = 8,
             .experts_used = 2,
             .shared_feed_forward = 128,
             .leading_dense = 1,
             .keys = {{"interleave_moe_layer_step", ExtraKey::Type::kInteger, 1}}},
};

}  // namespace palimpsest
