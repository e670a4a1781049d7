#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Llama 3 with layers from which an architecture search removed heads, attention (entirely or up to one product), or
// the feed-forward part (Puzzle, arXiv 2411.19146).
const Family kDeciFamily = {
    .architecture = "deci",
    .models = "Llama Nemotron (Nemotron-NAS), DeciLM",
    .rope = RopeKind::kPairs,
    .qkv_bias = Presence::kOptional,
    .attention_bias = Presence::kOptional,
    .layers_differ = true,
    .tiny = {.layers = 6,
             .query_heads_of = {8, 8, 0, 8, 0, 8},
             .kv_heads_of = {4, 2, 0, 2, 0, 1},
             .feed_forward_of = {512, 256, 384, 512, 0, 512}},
};

}  // namespace palimpsest
