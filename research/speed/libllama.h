// libllama as the reference engine of a bench: one model on the CPU and contexts over it.
#pragma once

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest::bench {

using LibllamaModel = std::shared_ptr<llama_model>;
using LibllamaContext = std::shared_ptr<llama_context>;

// CPU only, with llama.cpp's default repacking of weights. Throws Error if libllama refuses the file.
LibllamaModel load_libllama_model(const std::string& file);
// A context with `cells` cells, an f16 cache, and prompts in chunks of `chunk`. Throws Error.
LibllamaContext make_libllama_context(const LibllamaModel& model, int threads, int cells, bool flash_attention,
                                      int chunk = 512);
// Appends tokens to the only sequence and waits for the logits of the last one. Throws Error.
void libllama_forward(llama_context* context, std::span<const TokenId> tokens);

// A model file: `what` if it is a path, else a temporary file of random weights in the shape with that name.
class ModelFile {
 public:
  explicit ModelFile(const std::string& what);  // throws Error
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

double now_ms();
double quantile(std::vector<double> values, double at);  // at: 0 for the min, 1 for the max

}  // namespace palimpsest::bench
