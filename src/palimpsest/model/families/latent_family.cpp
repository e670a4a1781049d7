// Latent attention whose cache holds the keys and values of all heads, without experts.
#include <cmath>

#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_latent.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

namespace {

TinyShape tiny_expanded(int query_rank) {
  TinyShape out = {.query_heads = 4, .kv_heads = 4, .head_dim = 32 + 16};
  out.rope_dims = 16;
  out.value_dim = 32;
  out.latent = {.rank = 64, .query_rank = query_rank, .key = 32, .value = 32, .absorbed = false};
  return out;
}

}  // namespace

const Family kPlmFamily = {
    .architecture = "plm",
    .models = "PLM 1.8B",
    .rope = RopeKind::kPairs,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
    .output = Presence::kNo,
    .read = read_latent,
    .tiny = tiny_expanded(0),
};

// Its files do not say the model's factors of embeddings, of what layers add, and of logits.
const Family kMiniCpm3Family = {
    .architecture = "minicpm3",
    .models = "MiniCPM 3",
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_latent(keys, h);
          h.embedding_scale = 12;
          h.residual_scale = 1.4F / std::sqrt(static_cast<float>(h.layers));
          h.logit_scale = 256.0F / static_cast<float>(h.width);
        },
    .tiny = tiny_expanded(64),
};

}  // namespace palimpsest
