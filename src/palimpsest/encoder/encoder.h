// An encoder, run by libllama: embeddings and scores of whole texts (docs/decisions/0056-encoders.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_override.h"
#include "palimpsest/core/shared_tokens.h"
#include "palimpsest/model/encoder_file.h"

struct llama_context;
struct llama_model;

namespace palimpsest {

struct EncoderOptions {
  std::string device = {};  // as ModelOptions has it; empty: the CPU
  int threads = 1;
  int context = 0;                             // max tokens of a text; 0: as many as the model was trained on
  bool repack = true;                          // let ggml repack quantised weights
  std::optional<EncoderPooling> pooling = {};  // nullopt: the file's, else mean
  std::vector<GgufOverride> overrides = {};    // of metadata
};

// Texts of several callers take turns, in batches of at most kBatchTokens; a longer text is a batch of its own.
class Encoder {
 public:
  static constexpr int kBatchTokens = 256, kBatchTexts = 64;

  static std::shared_ptr<Encoder> load(const std::string& path, const EncoderOptions& options = {});  // throws Error
  ~Encoder();

  const EncoderFile& file() const { return file_; }
  EncoderPooling pooling() const { return pooling_; }
  int context() const { return context_; }  // max tokens of a text
  int width() const { return width_; }      // of a result

  // [texts][width]: vectors of Euclidean length 1 or, with kRank, what the head gives: the score comes first.
  // `check`: called before each batch and while others run; may throw, which ends the call. Thread-safe.
  // Requires: each text has 1 to context() tokens of the vocabulary. Throws std::runtime_error if libllama fails.
  std::vector<std::vector<float>> encode(std::span<const SharedTokens> texts, const std::function<void()>& check);

  struct Load {
    int callers = 0;  // of encode(), now: one runs
    long long batches = 0, texts = 0, tokens = 0;
  };
  Load load() const;

 private:
  class Turn;
  Encoder() = default;
  void run(std::span<const SharedTokens> texts, std::vector<std::vector<float>>& out);

  EncoderFile file_;
  EncoderPooling pooling_ = EncoderPooling::kMean;
  int context_ = 0, width_ = 0;
  std::unique_ptr<llama_model, void (*)(llama_model*)> model_{nullptr, nullptr};
  std::unique_ptr<llama_context, void (*)(llama_context*)> context_of_model_{nullptr, nullptr};
  bool has_memory_ = false;  // libllama keeps keys and values: of decoders that rank

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<const Turn*> turns_;  // the first one runs
  std::atomic<int> callers_ = 0;
  std::atomic<long long> batches_ = 0, texts_ = 0, tokens_ = 0;
};

}  // namespace palimpsest
