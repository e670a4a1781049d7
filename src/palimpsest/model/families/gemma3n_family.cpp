#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

AltUp gemma3n_alt_up() {
  constexpr float kOf95Percent = 1.6448533535F;  // deviations of a normal distribution above 95% of its values
  return {.inputs = 4, .laurel_rank = 64, .sparse_layers = 10, .sparsity = kOf95Percent};
}

// Four of five layers have a sliding window and their own RoPE base. The layers from the 21st on read the cache of the
// 19th or, without a window, of the 20th.
const Family kGemma3nFamily = {
    .architecture = "gemma3n",
    .models = "Gemma 3n E2B and E4B",
    .limits = "images, audio, drafts, layer by layer",
    .post_norms = Presence::kYes,
    .qk_norm = QkNorm::kHead,
    .value_norm = true,
    .own_kv_layers = 20,
    .activation = Activation::kGelu,
    .alt_up = true,
    .scaled_embedding = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          const std::string& path = keys.file().path();
          h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 5));
          h.output_soft_cap = static_cast<float>(keys.number("final_logit_softcapping", 30, 0, 1e6));
          h.attention_scale = 1;
          RopeOptions local;
          local.kind = h.rope.kind;
          local.dims = h.rope.dims;
          local.base = keys.number("rope.freq_base_swa", 10000, 1, 1e15);
          h.local_rope = local;
          h.alt_up = gemma3n_alt_up();
          h.alt_up.inputs = keys.optional("altup.num_inputs", h.alt_up.inputs, 16, 2);
          h.per_layer = keys.optional("embedding_length_per_layer_input", kGemma3nPerLayer, 1 << 16);
          if (keys.optional("altup.active_idx", 0, 15, 0) != 0)
            fail("{}: key {} other than 0 is not supported; use another model", path, keys.name("altup.active_idx"));
          const int shared = keys.optional("attention.shared_kv_layers", std::max(0, h.layers - 20), h.layers - 1, 0);
          if (!h.share_kv(h.layers - shared))
            fail("{}: {} of {} layers read the cache of an earlier layer, and none has the same window: damaged", path,
                 shared, h.layers);
        },
    .tiny = {.query_heads = 2,
             .kv_heads = 1,
             .layers = 25,
             .width = 64,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24},
                      {"rope.freq_base", ExtraKey::Type::kNumber, 1000000}}},
};

}  // namespace palimpsest
