// DRY samplers by their options: libllama compares each sequence breaker with the text of every token to build one.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

struct llama_sampler;
struct llama_vocab;

namespace palimpsest {

struct SamplerOptions;

class DryCache {
 public:
  // Has accepted no token: to be cloned. Keeps the last few. Thread-safe.
  std::shared_ptr<const llama_sampler> get(const SamplerOptions& options, const llama_vocab* vocabulary);

 private:
  using Key = std::tuple<float, float, int, int, std::vector<std::string>>;
  std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<const llama_sampler>>> samplers_;
};

}  // namespace palimpsest
