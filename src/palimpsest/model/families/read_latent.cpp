#include "palimpsest/model/families/read_latent.h"

#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

void read_latent(const ArchMetadata& keys, Hyperparameters& h) {
  const LayerGeometry& g = h.geometry.layer(0);
  const int rotary = h.rope.dims;
  LatentAttention& a = h.latent;
  a.absorbed = keys.has("attention.key_length_mla");
  a.rank = keys.required("attention.kv_lora_rank", 1 << 16);
  a.query_rank = keys.optional("attention.q_lora_rank", 0, 1 << 16, 0);
  const int key = a.absorbed ? keys.required("attention.key_length_mla", 4096) : g.key_width;
  a.value = a.absorbed ? keys.required("attention.value_length_mla", 4096) : g.value_width;
  a.key = key - rotary;
  if (a.key < 1 || rotary < 2)
    fail("{}: keys of {} dimensions have {} rotary ones: damaged", keys.file().path(), key, rotary);
  if (a.absorbed && (g.kv_heads != 1 || g.key_width != a.rank + rotary || g.value_width != a.rank))
    fail(
        "{}: a latent of {} and {} rotary dimensions want one KV head of {} and {}; the file has {} of {} and {}: "
        "damaged",
        keys.file().path(), a.rank, rotary, a.rank + rotary, a.rank, g.kv_heads, g.key_width, g.value_width);
  if (!a.absorbed && g.kv_heads != g.query_heads)
    fail("{}: {} query heads share {} KV heads, which latent attention does not: damaged", keys.file().path(),
         g.query_heads, g.kv_heads);

  h.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key)));
}

}  // namespace palimpsest
