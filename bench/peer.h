// libllama as the other engine of a bench: one model on the CPU, contexts over it.
#pragma once

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest::bench {

using PeerModel = std::shared_ptr<llama_model>;
using PeerContext = std::shared_ptr<llama_context>;

// The CPU alone, weights repacked as llama.cpp does by itself. Throws Error when libllama refuses the file.
PeerModel load_peer(const std::string& file);
// A context of so many cells, f16 cache, prompts in chunks of `chunk`. Throws Error.
PeerContext peer_context(const PeerModel& model, int threads, int cells, bool flash_attention, int chunk = 512);
// Takes tokens as the next of the only sequence and waits for the last one's logits. Throws Error.
void peer_forward(llama_context* context, std::span<const TokenId> tokens);

// A model file for as long as this lives: `what` itself if it is one, else random weights in the shape that it names.
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
double quantile(std::vector<double> values, double at);  // 0 the least, 1 the most

}  // namespace palimpsest::bench
