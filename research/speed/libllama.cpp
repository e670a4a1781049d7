#include "research/speed/libllama.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest::bench {

LibllamaModel load_libllama_model(const std::string& file) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  ggml_backend_dev_t none[] = {nullptr};
  params.devices = none;
  params.n_gpu_layers = 0;
  LibllamaModel model(llama_model_load_from_file(file.c_str(), params), llama_model_free);
  if (!model) fail("libllama refuses {}", file);
  return model;
}

LibllamaContext make_libllama_context(const LibllamaModel& model, int threads, int cells, bool flash_attention,
                                      int chunk) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(cells);
  params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(chunk);
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  LibllamaContext context(llama_init_from_model(model.get(), params), [model](llama_context* c) { llama_free(c); });
  if (!context) fail("libllama gives no context of {} tokens", cells);
  return context;
}

void libllama_forward(llama_context* context, std::span<const TokenId> tokens) {
  auto* first = const_cast<TokenId*>(tokens.data());  // libllama only reads them
  if (llama_decode(context, llama_batch_get_one(first, static_cast<int>(tokens.size()))) != 0)
    fail("llama_decode fails");
  llama_synchronize(context);
}

ModelFile::ModelFile(const std::string& what) : path_(what), made_(!std::filesystem::exists(what)) {
  if (!made_) return;
  const SyntheticShape shape = parse_synthetic(what);
  path_ = (std::filesystem::temp_directory_path() / ("bench-" + std::to_string(::getpid()) + ".gguf")).string();
  write_synthetic(shape, path_);
}

ModelFile::~ModelFile() {
  std::error_code ignored;
  if (made_) std::filesystem::remove(path_, ignored);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(at * static_cast<double>(values.size() - 1))];
}

}  // namespace palimpsest::bench
