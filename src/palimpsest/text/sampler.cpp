#include "palimpsest/text/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/constraint.h"
#include "palimpsest/text/grammar/matcher.h"
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
  for (const auto& [token, bias] : o.logit_bias) {
    if (token < 0 || (vocabulary != nullptr && token >= vocabulary->size()))
      fail("logit bias: there is no token {}", token);
    number(bias, -1000, 1000, "a logit bias", "-1000 to 1000");
  }
  if (o.constrained() && vocabulary == nullptr) fail("a grammar needs a vocabulary: synthetic models have none");
}

// A ring buffer of the last tokens.
class History {
 public:
  explicit History(std::size_t max) : max_(max) {}
  void add(TokenId token) {
    if (tokens_.size() < max_) return tokens_.push_back(token);
    if (max_ == 0) return;
    tokens_[oldest_] = token;
    oldest_ = (oldest_ + 1) % max_;
  }
  std::vector<TokenId> in_order() const {
    std::vector<TokenId> out(tokens_);
    std::ranges::rotate(out, out.begin() + static_cast<std::ptrdiff_t>(oldest_));
    return out;
  }

 private:
  std::size_t max_, oldest_ = 0;
  std::vector<TokenId> tokens_;
};

// The first number of State::grammar; the oldest snapshots have the tokens of the text there instead.
constexpr std::int32_t kMatcherState = -1;

}  // namespace

struct Sampler::Impl {
  Chain chain{nullptr, llama_sampler_free};
  std::optional<GrammarConstraint> grammar;
  std::vector<std::uint8_t> allowed;       // [tokens] by the grammar
  const Vocabulary* vocabulary = nullptr;  // with a grammar
  llama_sampler* penalties = nullptr;      // in the chain
  llama_sampler* dist = nullptr;           // in the chain; nullptr: greedy
  std::size_t tokens = 0;                  // logits
  std::vector<llama_token_data> candidates;
  SamplerOptions options;
  History history{0};
  std::uint64_t draws = 0, single_candidate = 0;

  void apply(llama_token_data_array& array) {
    llama_sampler_apply(chain.get(), &array);
    ++(array.size > 1 ? draws : single_candidate);
  }
  llama_token_data_array fill(std::span<const float> logits) {
    candidates.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<TokenId>(i), logits[i], 0};
    return {candidates.data(), candidates.size(), -1, false};
  }
  TokenId chosen(const llama_token_data_array& array) const {
    if (array.selected < 0 || std::isnan(array.data[array.selected].logit))
      fail(
          "the model's output is NaN: its weights are damaged (download the file again), or, with --portable or "
          "--device, a key or value does not fit the cache type (use --cache-type bf16 or f32)");
    return array.data[array.selected].id;
  }
  void mask(llama_token_data_array& array) {
    allowed.resize(std::max(tokens, static_cast<std::size_t>(vocabulary->size())));
    grammar->allowed(allowed);
    for (std::size_t i = 0; i < array.size; ++i)
      if (allowed[static_cast<std::size_t>(array.data[i].id)] == 0)
        array.data[i].logit = -std::numeric_limits<float>::infinity();
  }
  void accept(TokenId token) {
    llama_sampler_accept(chain.get(), token);
    if (penalties != nullptr) history.add(token);
    if (grammar) grammar->accept(token);
  }
};

Sampler::Sampler(const SamplerOptions& o, const Vocabulary* vocabulary, int vocabulary_size)
    : impl_(std::make_unique<Impl>()) {
  check(o, vocabulary);
  assert(vocabulary_size > 0);
  impl_->tokens = static_cast<std::size_t>(vocabulary_size);
  impl_->options = o;
  if (o.seed == 0xFFFFFFFFU) impl_->options.seed = std::random_device()();
  impl_->chain.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const auto add = [&](llama_sampler* sampler) { llama_sampler_chain_add(impl_->chain.get(), sampler); };

  if (!o.logit_bias.empty()) {
    std::vector<llama_logit_bias> bias;
    for (const auto& [token, value] : o.logit_bias)
      bias.push_back({token, value <= -100 ? -std::numeric_limits<float>::infinity() : value});
    add(llama_sampler_init_logit_bias(vocabulary_size, static_cast<std::int32_t>(bias.size()), bias.data()));
  }
  if (o.penalty_last_n > 0 && (o.repeat_penalty != 1 || o.frequency_penalty != 0 || o.presence_penalty != 0)) {
    impl_->penalties = llama_sampler_init_penalties(vocabulary_size, o.penalty_last_n, o.repeat_penalty,
                                                    o.frequency_penalty, o.presence_penalty);
    impl_->history = History(static_cast<std::size_t>(o.penalty_last_n));
    add(impl_->penalties);
  }
  if (o.temperature == 0) {
    add(llama_sampler_init_greedy());
  } else {
    if (o.top_k > 0) add(llama_sampler_init_top_k(o.top_k));
    if (o.top_p < 1) add(llama_sampler_init_top_p(o.top_p, 1));
    if (o.min_p > 0) add(llama_sampler_init_min_p(o.min_p, 1));
    add(llama_sampler_init_temp(o.temperature));
    add(impl_->dist = llama_sampler_init_dist(impl_->options.seed));
  }
  if (!o.constrained()) return;
  impl_->vocabulary = vocabulary;
  impl_->grammar.emplace(o, *vocabulary);
}

Sampler::~Sampler() = default;

// Checks the sampled token against the grammar first, and masks all tokens only if it is refused: much cheaper.
TokenId Sampler::sample(std::span<const float> logits) {
  assert(logits.size() == impl_->tokens);
  llama_token_data_array array = impl_->fill(logits);
  impl_->apply(array);
  TokenId token = impl_->chosen(array);
  if (impl_->grammar && !impl_->grammar->allows(token)) {
    array = impl_->fill(logits);
    impl_->mask(array);
    impl_->apply(array);
    token = impl_->chosen(array);
    if (!impl_->grammar->allows(token))
      throw GrammarError("the grammar allows no token here: it cannot be met with this vocabulary");
  }
  impl_->accept(token);
  return token;
}

void Sampler::accept(TokenId prompt_token) {
  if (impl_->penalties == nullptr) return;
  llama_sampler_accept(impl_->penalties, prompt_token);
  impl_->history.add(prompt_token);
}

std::uint32_t Sampler::seed() const {
  return impl_->options.seed;
}

const SamplerOptions& Sampler::options() const {
  return impl_->options;
}

Sampler::State Sampler::state() const {
  State state{.history = impl_->history.in_order(),
              .grammar = {},
              .draws = impl_->draws,
              .single_candidate = impl_->single_candidate};
  if (!impl_->grammar) return state;
  state.grammar = impl_->grammar->save();
  state.grammar.insert(state.grammar.begin(), kMatcherState);
  return state;
}

// The state of libllama's random generator cannot be read: repeats the same number of draws.
void Sampler::resume(std::uint32_t seed, const State& state) {
  assert(impl_->draws + impl_->single_candidate == 0);
  constexpr std::uint64_t kMaxDraws = 1'000'000'000;
  const bool in_numbers = !state.grammar.empty() && state.grammar.front() == kMatcherState;
  const auto known = [&](TokenId token) {
    return token >= 0 && static_cast<std::size_t>(token) < impl_->tokens &&
           (impl_->vocabulary == nullptr || token < impl_->vocabulary->size());
  };
  if (state.draws > kMaxDraws || state.single_candidate > kMaxDraws || !std::ranges::all_of(state.history, known) ||
      (!in_numbers && !std::ranges::all_of(state.grammar, known)))
    fail("the sampler's saved state is damaged: use an older snapshot");
  if (impl_->dist != nullptr && seed != impl_->options.seed) {
    llama_sampler* const chain = impl_->chain.get();  // its last sampler is `dist`
    llama_sampler_free(llama_sampler_chain_remove(chain, llama_sampler_chain_n(chain) - 1));
    llama_sampler_chain_add(chain, impl_->dist = llama_sampler_init_dist(seed));
  }
  impl_->options.seed = seed;
  for (const TokenId token : state.history) accept(token);
  if (in_numbers && impl_->grammar) impl_->grammar->restore(std::span(state.grammar).subspan(1));
  if (!in_numbers)
    for (const TokenId token : state.grammar) impl_->accept(token);
  for (const auto& [times, size] :
       {std::pair{state.draws, std::size_t{2}}, std::pair{state.single_candidate, std::size_t{1}}})
    for (std::uint64_t i = 0; impl_->dist != nullptr && i < times; ++i) {
      llama_token_data two[] = {{0, 1, 0}, {1, 0, 0}};
      llama_token_data_array array{two, size, -1, false};
      llama_sampler_apply(impl_->dist, &array);
    }
  impl_->draws = state.draws;
  impl_->single_candidate = state.single_candidate;
}

}  // namespace palimpsest
