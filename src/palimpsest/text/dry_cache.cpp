#include "palimpsest/text/dry_cache.h"

#include <llama.h>

#include <algorithm>

#include "palimpsest/text/sampler_options.h"

namespace palimpsest {

std::shared_ptr<const llama_sampler> DryCache::get(const SamplerOptions& o, const llama_vocab* vocabulary) {
  constexpr std::size_t kMax = 4;
  Key key(o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_penalty_last_n, o.dry_breakers);
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find(samplers_, key, [](const auto& each) -> const Key& { return each.first; });
  if (known != samplers_.end()) {
    std::rotate(known, known + 1, samplers_.end());
    return samplers_.back().second;
  }
  std::vector<const char*> breakers;
  for (const std::string& each : o.dry_breakers) breakers.push_back(each.c_str());
  std::shared_ptr<const llama_sampler> sampler(
      llama_sampler_init_dry(vocabulary, o.dry_multiplier, o.dry_base, o.dry_allowed_length, o.dry_penalty_last_n,
                             breakers.data(), breakers.size()),
      [](const llama_sampler* each) { llama_sampler_free(const_cast<llama_sampler*>(each)); });
  if (samplers_.size() == kMax) samplers_.erase(samplers_.begin());
  samplers_.emplace_back(std::move(key), sampler);
  return sampler;
}

}  // namespace palimpsest
