#include "palimpsest/text/sampler_chain.h"

#include <algorithm>
#include <limits>
#include <span>

namespace palimpsest {
namespace {

llama_sampler* bias_sampler(const SamplerOptions& o, int tokens) {
  std::vector<llama_logit_bias> bias;
  for (const auto& [token, value] : o.logit_bias)
    bias.push_back({token, value <= -100 ? -std::numeric_limits<float>::infinity() : value});
  return llama_sampler_init_logit_bias(tokens, static_cast<std::int32_t>(bias.size()), bias.data());
}

bool has(const SamplerOptions& o, SamplerKind kind) {
  return std::ranges::find(o.samplers, kind) != o.samplers.end();
}

bool penalizes(const SamplerOptions& o) {
  return o.penalty_last_n > 0 && (o.repeat_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0) &&
         has(o, SamplerKind::kPenalties);
}

bool remembers(SamplerKind kind) {
  return kind == SamplerKind::kPenalties || kind == SamplerKind::kDry;
}

// Candidates whose probability is 0 in float: libllama's typical_p computes log(0) * 0, and Mirostat log(0 / 0).
void drop_impossible(llama_token_data_array& array) {
  const std::span all(array.data, array.size);
  constexpr float kMinLog = 87;  // exp(-87) is a normal number
  float max = -std::numeric_limits<float>::infinity();
  for (const llama_token_data& each : all) max = std::max(max, each.logit);
  if (max == -std::numeric_limits<float>::infinity()) return;
  const auto rest =
      std::remove_if(all.begin(), all.end(), [&](const llama_token_data& c) { return c.logit < max - kMinLog; });
  array.size = static_cast<std::size_t>(rest - all.begin());
}

}  // namespace

bool SamplerChain::uses_dry(const SamplerOptions& o) {
  return o.dry_multiplier > 0 && o.dry_penalty_last_n > 0 && has(o, SamplerKind::kDry);
}

std::size_t SamplerChain::window(const SamplerOptions& o) {
  return static_cast<std::size_t>(
      std::max(penalizes(o) ? o.penalty_last_n : 0, uses_dry(o) ? o.dry_penalty_last_n : 0));
}

SamplerChain::SamplerChain(const SamplerOptions& o, const llama_sampler* dry, int tokens)
    : options_(o), tokens_(tokens) {
  if (!o.logit_bias.empty()) bias_.reset(bias_sampler(o, tokens));
  for (const SamplerKind kind : o.samplers) {
    const bool applies =
        o.greedy() ? remembers(kind) : o.mirostat == 0 || remembers(kind) || kind == SamplerKind::kTemperature;
    if (applies) add(kind, dry);
  }
  if (o.greedy()) last_.reset(llama_sampler_init_greedy());
  seed(o.seed);
}

// Those that are off are left out: a libllama sampler that does nothing costs time.
void SamplerChain::add(SamplerKind kind, const llama_sampler* dry) {
  const SamplerOptions& o = options_;
  const auto keep = static_cast<std::size_t>(std::max(o.min_keep, 1));
  const auto put = [&](bool on, auto make) {
    if (on) stages_.push_back({kind, Owned(make())});
  };
  switch (kind) {
    case SamplerKind::kPenalties:
      return put(penalizes(o), [&] {
        return llama_sampler_init_penalties(tokens_, o.penalty_last_n, o.repeat_penalty, o.frequency_penalty,
                                            o.presence_penalty);
      });
    case SamplerKind::kDry:
      return put(uses_dry(o), [&] { return llama_sampler_clone(dry); });
    case SamplerKind::kTopNSigma:
      return put(o.top_n_sigma > 0, [&] { return llama_sampler_init_top_n_sigma(o.top_n_sigma); });
    case SamplerKind::kTopK:
      return put(o.top_k > 0, [&] { return llama_sampler_init_top_k(o.top_k); });
    case SamplerKind::kTypicalP:
      return put(o.typical_p < 1, [&] { return llama_sampler_init_typical(o.typical_p, keep); });
    case SamplerKind::kTopP:
      return put(o.top_p < 1, [&] { return llama_sampler_init_top_p(o.top_p, keep); });
    case SamplerKind::kMinP:
      return put(o.min_p > 0, [&] { return llama_sampler_init_min_p(o.min_p, keep); });
    case SamplerKind::kXtc:  // seed() makes the sampler
      return put(o.xtc_probability > 0 && o.xtc_threshold <= 0.5F, [] { return nullptr; });
    case SamplerKind::kTemperature:
      return put(true, [&] {
        return o.dynatemp_range > 0 ? llama_sampler_init_temp_ext(o.temperature, o.dynatemp_range, o.dynatemp_exponent)
                                    : llama_sampler_init_temp(o.temperature);
      });
  }
}

// The samplers with a random generator.
void SamplerChain::seed(std::uint32_t seed) {
  const SamplerOptions& o = options_;
  if (o.greedy()) return;
  for (Stage& stage : stages_)
    if (stage.kind == SamplerKind::kXtc)
      stage.sampler.reset(llama_sampler_init_xtc(o.xtc_probability, o.xtc_threshold,
                                                 static_cast<std::size_t>(std::max(o.min_keep, 1)), seed));
  if (o.mirostat > 0)
    mirostat_.emplace(o.mirostat, o.mirostat_tau, o.mirostat_eta, tokens_, seed);
  else
    last_.reset(llama_sampler_init_dist(seed));
}

// libllama looks each candidate up among the remembered tokens: of 262,144 candidates that takes 0.6 ms. Penalties
// depend on the token alone, so only candidates for remembered tokens are given to it.
void SamplerChain::penalize(llama_sampler* penalties, llama_token_data_array& array) {
  const auto in_order = [&](TokenId token) {
    const auto i = static_cast<std::size_t>(token);
    return i < array.size && array.data[i].id == token;
  };
  if (recent_.size() * 4 > array.size || !std::ranges::all_of(recent_, in_order))
    return llama_sampler_apply(penalties, &array);
  penalized_.clear();
  for (const TokenId token : recent_) penalized_.push_back(array.data[token]);
  llama_token_data_array subset{penalized_.data(), penalized_.size(), -1, false};
  llama_sampler_apply(penalties, &subset);
  for (const llama_token_data& each : penalized_) array.data[each.id] = each;
  array.sorted = false;
}

void SamplerChain::apply(llama_token_data_array& array) {
  if (bias_) llama_sampler_apply(bias_.get(), &array);
  for (const Stage& stage : stages_) {
    if (stage.kind == SamplerKind::kXtc && array.size > 1) ++state_.xtc_draws;
    if (stage.kind == SamplerKind::kTypicalP) drop_impossible(array);
    if (stage.kind == SamplerKind::kPenalties)
      penalize(stage.sampler.get(), array);
    else
      llama_sampler_apply(stage.sampler.get(), &array);
  }
  if (mirostat_)
    drop_impossible(array), mirostat_->apply(array);
  else
    llama_sampler_apply(last_.get(), &array);
  ++(array.size > 1 ? state_.draws : state_.single_candidate);
}

void SamplerChain::accept(TokenId token) {
  for (const Stage& stage : stages_) {
    if (remembers(stage.kind)) llama_sampler_accept(stage.sampler.get(), token);
    if (stage.kind != SamplerKind::kPenalties) continue;
    if (recent_.size() < static_cast<std::size_t>(options_.penalty_last_n)) {
      recent_.push_back(token);
    } else {
      recent_[oldest_] = token;
      oldest_ = (oldest_ + 1) % recent_.size();
    }
  }
}

SamplerChain::State SamplerChain::initial(const SamplerOptions& o) {
  return {.mu = o.mirostat > 0 && !o.greedy() ? 2 * o.mirostat_tau : 0};
}

SamplerChain::State SamplerChain::state() const {
  State out = state_;
  out.mu = mu();
  return out;
}

void SamplerChain::resume(std::uint32_t seed, const State& state) {
  this->seed(seed);
  const auto again = [](llama_sampler* sampler, std::uint64_t times, std::size_t size) {
    for (std::uint64_t i = 0; i < times; ++i) {
      llama_token_data two[] = {{0, 1, 0}, {1, 0, 0}};
      llama_token_data_array array{two, size, -1, false};
      llama_sampler_apply(sampler, &array);
    }
  };
  for (const Stage& stage : stages_)
    if (stage.kind == SamplerKind::kXtc) again(stage.sampler.get(), state.xtc_draws, 2);
  if (mirostat_)
    mirostat_->resume(seed, state.mu == 0 ? mirostat_->mu() : state.mu, state.draws);  // 0: saved without Mirostat
  else if (!options_.greedy())
    again(last_.get(), state.draws, 2), again(last_.get(), state.single_candidate, 1);
  state_ = state;
  state_.mu = 0;
}

}  // namespace palimpsest
