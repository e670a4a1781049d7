#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Norms before and after both parts of a layer; RoPE on half of a head.
const Family kGlm4Family = {
    .architecture = "glm4",
    .models = "GLM 4 (0414), dense",
    .rope = RopeKind::kPairs,
    .post_norms = Presence::kYes,
    .qkv_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPackedGate,
    .tiny = {.rope_dims = 16, .tied = false},
};

const Family kChatGlmFamily = {
    .architecture = "chatglm",
    .models = "ChatGLM 2 and 3, GLM 4 9B (2024)",
    .rope = RopeKind::kPairs,
    .packed_qkv = true,
    .qkv_bias = Presence::kOptional,
    .feed_forward = FeedForward::kPackedGate,
    .tiny = {.rope_dims = 16, .tied = false},
};

}  // namespace palimpsest
