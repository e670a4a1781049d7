#include "palimpsest/text/sampler.h"

#include <llama.h>

#include <cassert>
#include <cmath>
#include <random>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

using Chain = std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)>;

void check(const SamplerOptions& o, const Vocabulary* vocabulary) {
  const auto number = [](float value, float low, float high, const char* name, const char* meaning) {
    if (!(value >= low && value <= high)) fail("{} is {}: give {}", name, value, meaning);
  };
  number(o.temperature, 0, 1000, "the temperature", "0 (always the likeliest token) to 1000");
  number(o.top_p, 0, 1, "top-p", "a probability from 0 to 1 (1: off)");
  number(o.min_p, 0, 1, "min-p", "a probability from 0 to 1 (0: off)");
  number(o.repeat_penalty, 0.01F, 100, "the repeat penalty", "0.01 to 100 (1: off)");
  number(o.frequency_penalty, -100, 100, "the frequency penalty", "-100 to 100 (0: off)");
  number(o.presence_penalty, -100, 100, "the presence penalty", "-100 to 100 (0: off)");
  if (o.top_k < 0) fail("top-k is {}: give a count of tokens (0: off)", o.top_k);
  if (o.penalty_last_n < 0 || o.penalty_last_n > 1'000'000)
    fail("the penalties' window is {}: give 0 to 1000000 tokens", o.penalty_last_n);
  if (!o.grammar.empty() && vocabulary == nullptr) fail("a grammar needs a vocabulary: synthetic models have none");
}

}  // namespace

struct Sampler::Impl {
  Chain chain{nullptr, llama_sampler_free};
  Chain grammar{nullptr, llama_sampler_free};
  llama_sampler* penalties = nullptr;  // in the chain
  std::vector<llama_token_data> candidates;
  std::uint32_t seed = 0;

  llama_token_data_array fill(std::span<const float> logits) {
    for (std::size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<TokenId>(i), logits[i], 0};
    return {candidates.data(), candidates.size(), -1, false};
  }
  TokenId chosen(const llama_token_data_array& array) const {
    if (array.selected < 0 || std::isnan(array.data[array.selected].logit))
      fail("the model's output is not a number: its weights are damaged, get the file again");
    return array.data[array.selected].id;
  }
  bool allowed(TokenId token) {
    llama_token_data one{token, 0, 0};
    llama_token_data_array array{&one, 1, -1, false};
    llama_sampler_apply(grammar.get(), &array);
    return !std::isinf(one.logit);
  }
};

Sampler::Sampler(const SamplerOptions& o, const Vocabulary* vocabulary, int vocabulary_size)
    : impl_(std::make_unique<Impl>()) {
  check(o, vocabulary);
  assert(vocabulary_size > 0);
  impl_->candidates.resize(static_cast<std::size_t>(vocabulary_size));
  impl_->seed = o.seed == 0xFFFFFFFFU ? std::random_device()() : o.seed;
  impl_->chain.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(impl_->chain.get(), sampler); };

  if (o.penalty_last_n > 0 && (o.repeat_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0)) {
    impl_->penalties = llama_sampler_init_penalties(vocabulary_size, o.penalty_last_n, o.repeat_penalty,
                                                    o.frequency_penalty, o.presence_penalty);
    add(impl_->penalties);
  }
  if (o.temperature == 0) {
    add(llama_sampler_init_greedy());
  } else {
    if (o.top_k > 0) add(llama_sampler_init_top_k(o.top_k));
    if (o.top_p < 1) add(llama_sampler_init_top_p(o.top_p, 1));
    if (o.min_p > 0) add(llama_sampler_init_min_p(o.min_p, 1));
    add(llama_sampler_init_temp(o.temperature));
    add(llama_sampler_init_dist(impl_->seed));
  }
  if (!o.grammar.empty()) {
    impl_->grammar.reset(llama_sampler_init_grammar(vocabulary->handle(), o.grammar.c_str(), "root"));
    if (!impl_->grammar) fail("the grammar is not valid GBNF, or has no rule `root`");
  }
}

Sampler::~Sampler() = default;

// The grammar looks at the one chosen token first; only if it objects, at all of them: that is much cheaper.
TokenId Sampler::sample(std::span<const float> logits) {
  assert(logits.size() == impl_->candidates.size());
  llama_token_data_array array = impl_->fill(logits);
  llama_sampler_apply(impl_->chain.get(), &array);
  TokenId token = impl_->chosen(array);
  if (impl_->grammar && !impl_->allowed(token)) {
    array = impl_->fill(logits);
    llama_sampler_apply(impl_->grammar.get(), &array);
    llama_sampler_apply(impl_->chain.get(), &array);
    token = impl_->chosen(array);
    if (!impl_->allowed(token)) fail("the grammar allows no token here: it cannot be met with this vocabulary");
  }
  llama_sampler_accept(impl_->chain.get(), token);
  if (impl_->grammar) llama_sampler_accept(impl_->grammar.get(), token);
  return token;
}

void Sampler::accept(TokenId prompt_token) {
  if (impl_->penalties != nullptr) llama_sampler_accept(impl_->penalties, prompt_token);
}

std::uint32_t Sampler::seed() const {
  return impl_->seed;
}

}  // namespace palimpsest
