#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Text and images are tokens of one vocabulary; the sampler excludes those of images (text/sampler.cpp). Each head of Q
// and K has a LayerNorm of its own; the other norms are RMS.
const Family kChameleonFamily = {
    .architecture = "chameleon",
    .models = "Chameleon 7B",
    .limits = "images, files with norms after each part (34B)",
    .rope = RopeKind::kPairs,
    .qk_norm = QkNorm::kPerHead,
    .qk_norm_bias = Presence::kOptional,
    .read =
        [](const ArchMetadata& keys, Hyperparameters&) {
          if (keys.flag("swin_norm", false))
            fail("{}: norms after each part of a layer ({}) are not supported for chameleon; use the 7B model",
                 keys.file().path(), keys.name("swin_norm"));
        },
    .tiny = {.query_heads = 4,
             .kv_heads = 2,
             .head_dim = 16,
             .width = 64,
             .keys = {{"swin_norm", ExtraKey::Type::kFlag, 0}}},
};

}  // namespace palimpsest
