#include "palimpsest/model/families/families.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Image tokens have weights of their own (vis_...), which text does not use. The rotary base is 10000, whatever the
// file says, as in libllama.
const Family kCogVlmFamily = {
    .architecture = "cogvlm",
    .models = "CogVLM",
    .limits = "images",
    .packed_qkv = true,
    .read =
        [](const ArchMetadata&, Hyperparameters& h) {
          RopeOptions rope;
          rope.kind = h.rope.kind;
          rope.dims = h.rope.dims;
          rope.original_context = h.rope.original_context;
          h.rope = rope;
        },
    .tiny = {.kv_heads = 8},
};

}  // namespace palimpsest
