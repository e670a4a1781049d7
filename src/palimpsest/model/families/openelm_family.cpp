#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Head counts and feed-forward widths grow with the layer index.
const Family kOpenElmFamily = {
    .architecture = "openelm",
    .models = "OpenELM",
    .qk_norm = QkNorm::kHead,
    .packed_qkv = true,
    .layers_differ = true,
    .output = Presence::kNo,
    .tiny = {.layers = 3, .query_heads_of = {4, 6, 8}, .kv_heads_of = {2, 3, 2}, .feed_forward_of = {256, 384, 512}},
};

}  // namespace palimpsest
