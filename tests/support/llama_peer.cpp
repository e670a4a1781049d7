#include "tests/support/llama_peer.h"

#include <llama.h>

#include <algorithm>
#include <map>
#include <memory>
#include <stdexcept>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/backend.h"

namespace palimpsest::testing {

namespace {

std::vector<float> llama_rows(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk,
                              bool flash_attention, int context_size, bool hidden, const std::string& adapter = {},
                              float scale = 1, const RopeSettings& rope = {}) {
  find_device("cpu");         // loads ggml's backends
  static std::string errors;  // of the last model: the function outlives this call
  errors.clear();
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level == GGML_LOG_LEVEL_ERROR) errors += text;
      },
      nullptr);
  ggml_backend_dev_t none[] = {nullptr};
  llama_model_params model_params = llama_model_default_params();
  model_params.devices = none;
  model_params.n_gpu_layers = 0;
  // On CPUs with AMX, libllama puts the matrices of heads where it cannot multiply by them, and aborts.
  const auto architecture = GgufFile::open(gguf).text("general.architecture");
  if (architecture == "deepseek2" || architecture == "mistral4") model_params.use_extra_bufts = false;
  const std::unique_ptr<llama_model, void (*)(llama_model*)> model(
      llama_model_load_from_file(gguf.c_str(), model_params), llama_model_free);
  if (!model) throw std::runtime_error("libllama refuses " + gguf + ": " + errors);
  const auto count = static_cast<std::uint32_t>(tokens.size());
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context_size > 0 ? static_cast<std::uint32_t>(context_size) : (count + 255) / 256 * 256;
  params.n_batch = params.n_ubatch = params.n_outputs_max = static_cast<std::uint32_t>(chunk);
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  params.no_perf = true;
  params.embeddings = hidden;
  params.pooling_type = LLAMA_POOLING_TYPE_NONE;
  if (rope.scaling == "none") params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_NONE;
  if (rope.scaling == "linear") params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_LINEAR;
  if (rope.scaling == "yarn") params.rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
  if (rope.scale) params.rope_freq_scale = static_cast<float>(1 / *rope.scale);
  if (rope.freq_scale) params.rope_freq_scale = static_cast<float>(*rope.freq_scale);
  if (rope.freq_base) params.rope_freq_base = static_cast<float>(*rope.freq_base);
  if (rope.ext_factor) params.yarn_ext_factor = static_cast<float>(*rope.ext_factor);
  if (rope.beta_slow) params.yarn_beta_slow = static_cast<float>(*rope.beta_slow);
  if (rope.beta_fast) params.yarn_beta_fast = static_cast<float>(*rope.beta_fast);
  if (rope.original_context) params.yarn_orig_ctx = static_cast<std::uint32_t>(*rope.original_context);
  const std::unique_ptr<llama_context, void (*)(llama_context*)> context(llama_init_from_model(model.get(), params),
                                                                         llama_free);
  if (!context) throw std::runtime_error("libllama gives no context for " + gguf);
  if (!adapter.empty()) {  // freed with the model
    llama_adapter_lora* lora = llama_adapter_lora_init(model.get(), adapter.c_str());
    if (lora == nullptr || llama_set_adapters_lora(context.get(), &lora, 1, &scale) != 0)
      throw std::runtime_error("libllama refuses " + adapter);
  }
  const int width = hidden ? llama_model_n_embd(model.get()) : llama_vocab_n_tokens(llama_model_get_vocab(model.get()));

  std::vector<float> out;
  llama_batch batch = llama_batch_init(chunk, 0, 1);
  for (int first = 0; first < static_cast<int>(tokens.size()); first += chunk) {
    batch.n_tokens = std::min(chunk, static_cast<int>(tokens.size()) - first);
    for (int i = 0; i < batch.n_tokens; ++i) {
      batch.token[i] = tokens[static_cast<std::size_t>(first + i)];
      batch.pos[i] = first + i;
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(context.get(), batch) != 0) throw std::runtime_error("llama_decode fails on " + gguf);
    for (int i = 0; i < batch.n_tokens; ++i) {
      const float* row = hidden ? llama_get_embeddings_ith(context.get(), i) : llama_get_logits_ith(context.get(), i);
      if (row == nullptr) throw std::runtime_error("libllama gives no row for " + gguf);
      out.insert(out.end(), row, row + width);
    }
  }
  llama_batch_free(batch);
  return out;
}

}  // namespace

std::vector<float> llama_logits(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk,
                                bool flash_attention, int context) {
  return llama_rows(gguf, tokens, chunk, flash_attention, context, false);
}

std::vector<float> llama_logits_with_adapter(const std::string& gguf, const std::vector<TokenId>& tokens,
                                             const std::string& adapter, float scale) {
  return llama_rows(gguf, tokens, 64, false, 0, false, adapter, scale);
}

std::vector<float> llama_logits_with_rope(const std::string& gguf, const std::vector<TokenId>& tokens,
                                          const RopeSettings& rope) {
  return llama_rows(gguf, tokens, 64, false, 0, false, {}, 1, rope);
}

std::vector<float> llama_hidden(const std::string& gguf, const std::vector<TokenId>& tokens, int chunk) {
  return llama_rows(gguf, tokens, chunk, false, 0, true);
}

void llama_quantize(const std::string& from, const std::string& to, const std::string& type) {
  static const std::map<std::string, llama_ftype> types = {{"f16", LLAMA_FTYPE_MOSTLY_F16},
                                                           {"q8_0", LLAMA_FTYPE_MOSTLY_Q8_0},
                                                           {"q4_0", LLAMA_FTYPE_MOSTLY_Q4_0},
                                                           {"q4_K", LLAMA_FTYPE_MOSTLY_Q4_K_M}};
  find_device("cpu");
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_quantize_params params = llama_model_quantize_default_params();
  params.ftype = types.at(type);
  params.nthread = 1;
  if (llama_model_quantize(from.c_str(), to.c_str(), &params) != 0)
    throw std::runtime_error("libllama cannot quantise " + from);
}

}  // namespace palimpsest::testing
