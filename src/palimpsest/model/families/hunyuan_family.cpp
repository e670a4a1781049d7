#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

// YaRN scales rotated vectors, which a norm after the rotation undoes.
void check_rope(const ArchMetadata& keys, Hyperparameters& h) {
  if (h.rope.yarn_ext_factor != 0 || h.rope.yarn_attn_factor != 1)
    fail("{}: rope scaling \"yarn\" is not supported for {}: use a file without it", keys.file().path(),
         h.architecture);
}

}  // namespace

const Family kHunyuanDenseFamily = {
    .architecture = "hunyuan-dense",
    .models = "Hunyuan, dense",
    .limits = "YaRN",
    .qk_norm = QkNorm::kAfterRotation,
    .read = check_rope,
};

// For text, the rotary dimensions of time, height and width have the same position. Its base is that of a longer
// context (NTK by the base, as RopeSettings has it).
const Family kHunyuanVlFamily = {
    .architecture = "hunyuan_vl",
    .models = "Hunyuan VL and OCR",
    .limits = "images, YaRN",
    .qk_norm = QkNorm::kAfterRotation,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          check_rope(keys, h);
          const double alpha = keys.number("rope.scaling.alpha", 0, 0, 1e6), width = h.geometry.max_key_width();
          if (alpha > 0) h.rope.base *= std::pow(alpha, width / (width - 2));
        },
    .tiny = {.keys = {{"rope.dimension_sections", ExtraKey::Type::kSigned, 8},
                      {"rope.scaling.alpha", ExtraKey::Type::kNumber, 4}}},
};

const Family kMaincoderFamily = {
    .architecture = "maincoder",
    .models = "Maincoder 1B",
    .limits = "YaRN",
    .rope = RopeKind::kPairs,
    .qk_norm = QkNorm::kAfterRotation,
    .read = check_rope,
};

// All layers have one shared expert.
const Family kHunyuanMoeFamily = {
    .architecture = "hunyuan-moe",
    .models = "Hunyuan A13B",
    .limits = "YaRN",
    .qk_norm = QkNorm::kAfterRotation,
    .experts = Presence::kYes,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          check_rope(keys, h);
          if (h.expert_feed_forward != h.feed_forward.front())
            fail("{}: experts have a width of {}, the model {}: damaged", keys.file().path(), h.expert_feed_forward,
                 h.feed_forward.front());
          h.shared_feed_forward = keys.optional("expert_shared_feed_forward_length", h.expert_feed_forward);
        },
    .tiny = {.experts = 8, .experts_used = 2, .shared_feed_forward = 256},
};

}  // namespace palimpsest
