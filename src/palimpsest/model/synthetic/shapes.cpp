// The named shapes of synthetic models.
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest {

namespace {

// Shapes as published, with the usual weight type Q4_0 or Q8_0. Compiled in from shapes.json; its keys are members of
// SyntheticShape.
constexpr const char* kRealShapes =
#include "synthetic_shapes.inc"
    ;

using Json = nlohmann::json;

// Parses an entry of shapes.json; an unknown key is an error.
SyntheticShape real_shape(const Json& model) {
  static const std::map<std::string, int SyntheticShape::*, std::less<>> integers = {
      {"vocabulary", &SyntheticShape::vocabulary},
      {"width", &SyntheticShape::width},
      {"layers", &SyntheticShape::layers},
      {"feed_forward", &SyntheticShape::feed_forward},
      {"query_heads", &SyntheticShape::query_heads},
      {"kv_heads", &SyntheticShape::kv_heads},
      {"head_dim", &SyntheticShape::head_dim},
      {"context", &SyntheticShape::context},
      {"experts", &SyntheticShape::experts},
      {"experts_used", &SyntheticShape::experts_used},
      {"expert_feed_forward", &SyntheticShape::expert_feed_forward},
      {"rope_dims", &SyntheticShape::rope_dims},
      {"original_context", &SyntheticShape::original_context},
      {"convolution_taps", &SyntheticShape::convolution_taps},
      {"shared_feed_forward", &SyntheticShape::shared_feed_forward},
      {"attention_interval", &SyntheticShape::attention_interval},
      {"value_dim", &SyntheticShape::value_dim},
      {"leading_dense", &SyntheticShape::leading_dense},
  };
  SyntheticShape s;
  for (const auto& [key, value] : model.items()) {
    if (const auto it = integers.find(key); it != integers.end()) {
      s.*it->second = value.get<int>();
    } else if (key == "name") {
      s.name = value.get<std::string>();
    } else if (key == "architecture") {
      s.architecture = value.get<std::string>();
    } else if (key == "type") {
      s.type = parse_weight_type(value.get<std::string>());
    } else if (key == "state_heads") {
      s.state_heads = {.heads = value.at("heads"),
                       .head_dim = value.at("head_dim"),
                       .groups = value.at("groups"),
                       .state_width = value.at("state_width")};
    } else if (key == "latent") {
      s.latent = {.rank = value.at("rank"),
                  .query_rank = value.at("query_rank"),
                  .key = value.at("key"),
                  .value = value.at("value")};
    } else if (key == "kv_heads_of") {
      s.kv_heads_of = value.get<std::vector<int>>();
    } else if (key == "tied") {
      s.tied = value.get<bool>();
    } else if (key == "llama3_factors") {
      s.llama3_factors = value.get<bool>();
    } else if (key == "rope_base") {
      s.rope_base = value.get<double>();
    } else if (key == "keys") {  // GGUF metadata: 8 is an integer, 8.0 a float
      for (const auto& [name, v] : value.items()) {
        const ExtraKey::Type type = v.is_boolean()          ? ExtraKey::Type::kFlag
                                    : v.is_number_integer() ? ExtraKey::Type::kInteger
                                                            : ExtraKey::Type::kNumber;
        s.keys.push_back({name, type, v.is_boolean() ? (v.get<bool>() ? 1.0 : 0.0) : v.get<double>()});
      }
    } else {
      fail("shapes.json: {}: unknown key \"{}\"", s.name, key);
    }
  }
  return s;
}

SyntheticShape tiny(const Family& family) {
  const TinyShape& t = family.tiny;
  return {.name = "tiny-" + std::string(family.architecture),
          .architecture = std::string(family.architecture),
          // libllama writes to the logits of Chameleon's image tokens, 4 to 8195.
          .vocabulary = family.architecture == "chameleon" ? 8224 : 512,
          .width = t.width,
          .layers = t.layers,
          .query_heads = t.query_heads,
          .kv_heads = t.kv_heads,
          .head_dim = t.head_dim,
          .query_heads_of = t.query_heads_of,
          .kv_heads_of = t.kv_heads_of,
          .feed_forward_of = t.feed_forward_of,
          .value_dim = t.value_dim,
          .latent = t.latent,
          .convolution_taps = t.convolution_taps,
          .state_heads = t.state_heads,
          .attention_interval = t.attention_interval,
          .experts = t.experts,
          .experts_used = t.experts_used,
          .shared_feed_forward = t.shared_feed_forward,
          .leading_dense = t.leading_dense,
          .adjugate_group = t.adjugate_group,
          .adjugate_feed_forward = t.adjugate_feed_forward,
          .expert_interval = t.expert_interval,
          .window_head_dim = t.window_head_dim,
          .window_period = t.window_period,
          .own_kv_layers = t.own_kv_layers,
          .per_layer = t.per_layer,
          .rope_share = t.rope_share,
          .tied = t.tied,
          .optional_tensors = true,
          .rope_dims = t.rope_dims,
          .keys = t.keys};
}

// As 26B A4B: experts, no embeddings of layers, no shared caches; values are keys where there is no window.
SyntheticShape gemma4_mixture() {
  SyntheticShape s = tiny(find_family("gemma4"));
  s.name = "tiny-gemma4-moe";
  s.own_kv_layers = s.per_layer = 0;
  s.keys.push_back({"embedding_length_per_layer_input", ExtraKey::Type::kInteger, 0});
  s.experts = 8;
  s.experts_used = 2;
  s.expert_feed_forward = 64;
  s.feed_forward = 128;
  s.gate_up_in_one = true;
  s.omit = {"blk.2.attn_v", "blk.5.attn_v"};
  return s;
}

}  // namespace

const std::map<std::string, SyntheticShape, std::less<>>& synthetic_shapes() {
  static const std::map<std::string, SyntheticShape, std::less<>> shapes = [] {
    std::map<std::string, SyntheticShape, std::less<>> m;
    const auto add = [&](const SyntheticShape& s) { m.emplace(s.name, s); };
    add({});  // "tiny": a plain Llama
    add({.name = "tiny-nope", .rope_dims = 0});
    add({.name = "tiny-mixtral", .experts = 4, .experts_used = 2});
    for (const Family* family : kFamilies) add(tiny(*family));
    add(gemma4_mixture());
    for (const Json& model : Json::parse(kRealShapes)) add(real_shape(model));
    return m;
  }();
  return shapes;
}

}  // namespace palimpsest
