// Models of code with LayerNorm, biases and a plain feed-forward.
#include "palimpsest/model/families/families.h"

namespace palimpsest {

namespace {

Family code_model(std::string_view architecture, std::string_view models, RopeKind rope) {
  Family out = {.architecture = architecture, .models = models, .rope = rope, .norm = Norm::kLayer};
  out.norm_bias = Presence::kYes;
  out.qkv_bias = Presence::kYes;
  out.attention_bias = Presence::kYes;
  out.feed_forward = FeedForward::kPlain;
  out.activation = Activation::kGelu;
  out.feed_forward_bias = Presence::kYes;
  return out;
}

}  // namespace

// One KV head; learned positions.
const Family kStarcoderFamily = [] {
  Family out = code_model("starcoder", "StarCoder, SantaCoder", RopeKind::kNone);
  out.learned_positions = Presence::kYes;
  out.packed_qkv = true;
  out.tiny.kv_heads = 1;
  return out;
}();

const Family kStarcoder2Family = code_model("starcoder2", "StarCoder 2, Granite Code 3B and 8B", RopeKind::kHalves);

const Family kCodeShellFamily = [] {
  Family out = code_model("codeshell", "CodeShell", RopeKind::kHalves);
  out.packed_qkv = true;
  out.output = Presence::kYes;
  out.tiny.tied = false;
  return out;
}();

}  // namespace palimpsest
