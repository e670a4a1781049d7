#include "tests/fuzz/gguf_valid.h"

#include <fmt/format.h>
#include <ggml-cpp.h>

#include <algorithm>
#include <string>

#include "palimpsest/model/families/families.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest::testing {
namespace {

void set_counts(gguf_context* g, const std::string& architecture) {
  gguf_set_val_str(g, "general.architecture", architecture.c_str());
  for (const char* key :
       {"context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"})
    gguf_set_val_u32(g, (architecture + "." + key).c_str(), 4);
  gguf_set_val_f32(g, (architecture + ".attention.layer_norm_rms_epsilon").c_str(), 1e-6F);
}

Bytes bytes_of(const gguf_context* g) {
  Bytes bytes(gguf_get_meta_size(g));
  gguf_get_meta_data(g, bytes.data());
  return bytes;
}

// A vocabulary without a model, of GPT-2's kind: a token for every byte in GPT-2's byte encoding, two merges, a
// template.
Bytes byte_pair_vocabulary() {
  const gguf_context_ptr g(gguf_init_empty());
  std::vector<std::string> tokens;
  for (unsigned byte = 0, other = 256; byte < 256; ++byte) {
    const bool plain = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    const unsigned letter = plain ? byte : other++;
    if (letter < 128)
      tokens.emplace_back(1, static_cast<char>(letter));
    else
      tokens.push_back({static_cast<char>(0xC0 | (letter >> 6)), static_cast<char>(0x80 | (letter & 63))});
  }
  tokens.insert(tokens.end(), {"ab", "abc", "<|endoftext|>", "<|im_end|>"});
  std::vector<const char*> texts;
  for (const auto& token : tokens) texts.push_back(token.c_str());
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[258] = types[259] = 3;
  const char* merges[] = {"a b", "ab c"};
  set_counts(g.get(), "qwen2");
  gguf_set_val_str(g.get(), "tokenizer.ggml.model", "gpt2");
  gguf_set_val_str(g.get(), "tokenizer.ggml.pre", "qwen2");
  gguf_set_arr_str(g.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(g.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_arr_str(g.get(), "tokenizer.ggml.merges", merges, 2);
  gguf_set_val_u32(g.get(), "tokenizer.ggml.eos_token_id", 259);
  gguf_set_val_u32(g.get(), "tokenizer.ggml.bos_token_id", 258);
  gguf_set_val_bool(g.get(), "tokenizer.ggml.add_bos_token", true);
  gguf_set_val_str(g.get(), "tokenizer.chat_template", "{{ messages }}<|im_start|>");
  return bytes_of(g.get());
}

// The same, of Gemma 4's kind: a token for every byte, spaces as U+2581.
Bytes gemma4_vocabulary() {
  const gguf_context_ptr g(gguf_init_empty());
  std::vector<std::string> tokens = {"<pad>", "<eos>", "<bos>", "<unk>"};
  std::vector<std::int32_t> types = {3, 3, 3, 3};
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte)), types.push_back(6);
  for (const char* token : {"a", "b", "\xE2\x96\x81", "ab", "\n"}) tokens.emplace_back(token), types.push_back(1);
  std::vector<const char*> texts;
  for (const auto& token : tokens) texts.push_back(token.c_str());
  const std::vector<float> scores(tokens.size(), -1.0F);
  const char* merges[] = {"a b", "\xE2\x96\x81 ab"};
  set_counts(g.get(), "gemma4");
  gguf_set_val_str(g.get(), "tokenizer.ggml.model", "gemma4");
  gguf_set_arr_str(g.get(), "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(g.get(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
  gguf_set_arr_data(g.get(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
  gguf_set_arr_str(g.get(), "tokenizer.ggml.merges", merges, 2);
  gguf_set_val_u32(g.get(), "tokenizer.ggml.eos_token_id", 1);
  gguf_set_val_u32(g.get(), "tokenizer.ggml.bos_token_id", 2);
  return bytes_of(g.get());
}

}  // namespace

// Small complete models: every family, tied and untied embeddings, f32 and quantised, each kind of RoPE scaling.
std::vector<ValidGguf> valid_gguf_files() {
  const SyntheticShape base{.vocabulary = 264,
                            .width = 32,
                            .layers = 1,
                            .feed_forward = 32,
                            .query_heads = 2,
                            .kv_heads = 1,
                            .head_dim = 16,
                            .context = 128};
  std::vector<SyntheticShape> shapes(4, base);
  shapes[0].type = GGML_TYPE_Q8_0;
  shapes[1].tied = false;
  shapes[1].type = GGML_TYPE_Q4_0;
  shapes[2].llama3_factors = true;
  shapes[2].original_context = 64;
  shapes[2].layers = 2;
  shapes[3].rope_scaling = "yarn";
  shapes[3].rope_factor = 4;
  shapes[3].original_context = 32;
  for (const Family* family : families()) {
    SyntheticShape shape = parse_synthetic("tiny-" + std::string(family->architecture));
    shape.vocabulary = base.vocabulary;
    shape.width = shape.feed_forward = base.width;
    shape.layers = std::max({base.layers, shape.attention_interval, shape.expert_interval});
    shape.kv_heads = shape.kv_heads == shape.query_heads ? base.query_heads : base.kv_heads;
    shape.query_heads = base.query_heads;
    shape.head_dim = base.head_dim;
    shape.leading_dense = 0;
    if (shape.shared_feed_forward > 0) shape.shared_feed_forward = base.width;
    if (shape.latent) {
      const LatentAttention of_family = shape.latent;
      shape.latent = {.rank = 16,
                      .query_rank = of_family.query_rank > 0 ? 16 : 0,
                      .key = 8,
                      .value = 8,
                      .absorbed = of_family.absorbed};
      shape.rope_dims = 8;
      shape.head_dim = of_family.absorbed ? 16 + 8 : 8 + 8;
      shape.value_dim = of_family.absorbed ? 16 : 8;
    }
    if (shape.state_heads)
      shape.state_heads = {
          .heads = 2, .head_dim = 16, .groups = 1, .state_width = 16, .tiled = shape.state_heads.tiled};
    if (shape.window_period > 0) {
      shape.layers = 4;
      shape.kv_heads_of = {2, 1, 2, 1};
      shape.window_head_dim = 8;
      shape.window_period = shape.own_kv_layers = 2;
      shape.per_layer = 16;
    } else if (family->layers_differ) {
      shape.layers = 2;
      shape.query_heads_of = {base.query_heads, shape.convolution_taps > 0 ? base.query_heads : 0};
      shape.kv_heads_of = {base.kv_heads, 0};
      if (shape.experts == 0) shape.feed_forward_of = {0, base.width};
      if (family->single_parts) {
        shape.layers = 3;
        shape.feed_forward_of = {0, 0, base.width};
      }
    }
    if (family->architecture == "qwen3next") shape.delta_in_one = true;
    if (family->architecture == "nemotron_h_moe") shape.expert_latent = base.width;
    shape.context = base.context;
    shape.type = shapes.size() % 2 == 0 ? GGML_TYPE_F32 : GGML_TYPE_F16;
    shapes.push_back(shape);
  }
  SyntheticShape mixture = parse_synthetic("tiny-gemma4-moe");  // a family with two kinds of files
  mixture.vocabulary = base.vocabulary;
  mixture.width = mixture.feed_forward = mixture.expert_feed_forward = base.width;
  mixture.layers = mixture.window_period = 2;
  mixture.query_heads = base.query_heads;
  mixture.kv_heads_of = {2, 1};
  mixture.head_dim = base.head_dim;
  mixture.window_head_dim = 8;
  mixture.experts = 2;
  mixture.experts_used = 1;
  mixture.context = base.context;
  mixture.omit = {"blk.1.attn_v"};
  shapes.push_back(mixture);
  std::vector<ValidGguf> files;
  for (const auto& shape : shapes) {
    const GgufFile file = make_synthetic(shape);
    files.push_back({{file.bytes().begin(), file.bytes().end()}, true});
  }
  files.push_back({byte_pair_vocabulary(), false});
  files.push_back({gemma4_vocabulary(), false});
  return files;
}

}  // namespace palimpsest::testing
