#include "palimpsest/model/families/families.h"

namespace palimpsest {

const Family kSeedOssFamily = {
    .architecture = "seed_oss",
    .models = "Seed-OSS",
    .feed_forward_norm_name = "post_attention_norm",
    .qkv_bias = Presence::kOptional,
    .tiny = {.head_dim = 64},
};

}  // namespace palimpsest
