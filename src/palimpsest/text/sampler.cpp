#include "palimpsest/text/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/constraint.h"
#include "palimpsest/text/grammar/matcher.h"
#include "palimpsest/text/sampler_chain.h"
#include "palimpsest/text/sampler_fields.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

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

constexpr int kMaxContext = 1'000'000;

// As it is used: the seed of the clock, and the model's context.
SamplerOptions resolved(SamplerOptions options, const Vocabulary* vocabulary) {
  if (options.seed == kRandomSeed) options.seed = std::random_device()();
  for (int* const window : {&options.penalty_last_n, &options.dry_penalty_last_n})
    if (*window < 0) *window = vocabulary == nullptr ? 0 : std::min(vocabulary->trained_context(), kMaxContext);
  return options;
}

// Tokens that no text has, by the file (tokenizer.ggml.suppress_tokens): Gemma 4's marks of images and audio.
std::vector<TokenId> suppressed_of(const Vocabulary* vocabulary, std::size_t tokens) {
  std::vector<TokenId> out;
  if (vocabulary == nullptr) return out;
  std::int32_t count = 0;
  const llama_token* const all = llama_vocab_get_suppress_tokens(llama_model_get_vocab(vocabulary->model()), &count);
  for (const TokenId token : std::span(all, static_cast<std::size_t>(count)))
    if (token >= 0 && static_cast<std::size_t>(token) < tokens) out.push_back(token);
  // Chameleon's files do not list its image tokens; llama.cpp has these numbers.
  char architecture[16] = {};
  llama_model_meta_val_str(vocabulary->model(), "general.architecture", architecture, sizeof architecture);
  constexpr TokenId kFirstImage = 4, kLastImage = 8195;
  if (std::string_view(architecture) == "chameleon")
    for (TokenId token = kFirstImage; token <= kLastImage && static_cast<std::size_t>(token) < tokens; ++token)
      out.push_back(token);
  return out;
}

}  // namespace

struct Sampler::Impl {
  Impl(const SamplerOptions& given, const Vocabulary* words, int size)
      : tokens(static_cast<std::size_t>(size)),
        options(resolved(given, words)),
        history(SamplerChain::window(options)),
        first(SamplerChain::initial(options)),
        suppressed(suppressed_of(words, tokens)) {
    if (SamplerChain::uses_dry(options)) dry = words->dry_sampler(options);
    if (options.constrained()) {
      vocabulary = words;
      grammar.emplace(options, *words);
    }
    if (options.min_tokens == 0) return;
    ends = options.stop_tokens;
    for (TokenId token = 0; words != nullptr && token < words->size(); ++token)
      if (words->is_end(token)) ends.push_back(token);
  }

  std::size_t tokens;  // logits
  SamplerOptions options;
  History history;
  SamplerChain::State first;
  std::vector<TokenId> suppressed;
  std::shared_ptr<const llama_sampler> dry;
  std::optional<SamplerChain> built;
  std::optional<GrammarConstraint> grammar;
  std::vector<std::uint8_t> allowed;       // [tokens] by the grammar
  const Vocabulary* vocabulary = nullptr;  // with a grammar
  std::vector<TokenId> ends;               // not to be sampled among the first min_tokens
  std::uint64_t sampled = 0;               // up to min_tokens
  std::vector<llama_token_data> candidates;

  SamplerChain& chain() {
    if (built) return *built;
    built.emplace(options, dry.get(), static_cast<int>(tokens));
    for (const TokenId token : history.in_order()) built->accept(token);
    return *built;
  }
  bool too_early() const { return sampled < static_cast<std::uint64_t>(options.min_tokens); }
  llama_token_data_array fill(std::span<const float> logits) {
    candidates.resize(logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) candidates[i] = {static_cast<TokenId>(i), logits[i], 0};
    const auto exclude = [&](TokenId token) {
      candidates[static_cast<std::size_t>(token)].logit = -std::numeric_limits<float>::infinity();
    };
    for (const TokenId token : suppressed) exclude(token);
    if (too_early())
      for (const TokenId token : ends)
        if (static_cast<std::size_t>(token) < tokens) exclude(token);
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
  void remember(TokenId token) {
    if (built) built->accept(token);
    history.add(token);
  }
  void accept(TokenId token) {
    remember(token);
    if (too_early()) ++sampled;
    if (grammar) grammar->accept(token);
  }
};

Sampler::Sampler(const SamplerOptions& options, const Vocabulary* vocabulary, int vocabulary_size) {
  check(options, vocabulary);
  assert(vocabulary_size > 0);
  impl_ = std::make_unique<Impl>(options, vocabulary, vocabulary_size);
}

Sampler::~Sampler() = default;

// Checks the sampled token against the grammar first, and masks all tokens only if it is refused: much cheaper.
TokenId Sampler::sample(std::span<const float> logits) {
  assert(logits.size() == impl_->tokens);
  SamplerChain& chain = impl_->chain();
  llama_token_data_array array = impl_->fill(logits);
  const float mu = chain.mu();
  chain.apply(array);
  TokenId token = impl_->chosen(array);
  if (impl_->grammar && !impl_->grammar->allows(token)) {
    array = impl_->fill(logits);
    impl_->mask(array);
    chain.set_mu(mu);
    chain.apply(array);
    token = impl_->chosen(array);
    if (!impl_->grammar->allows(token))
      throw GrammarError("the grammar allows no token here: it cannot be met with this vocabulary");
  }
  impl_->accept(token);
  return token;
}

void Sampler::accept(TokenId prompt_token) {
  impl_->remember(prompt_token);
}

std::uint32_t Sampler::seed() const {
  return impl_->options.seed;
}

const SamplerOptions& Sampler::options() const {
  return impl_->options;
}

bool Sampler::stops_at(TokenId token) const {
  return std::ranges::find(impl_->options.stop_tokens, token) != impl_->options.stop_tokens.end();
}

Sampler::State Sampler::state() const {
  const SamplerChain::State chain = impl_->built ? impl_->built->state() : impl_->first;
  State state{.history = impl_->history.in_order(),
              .draws = chain.draws,
              .single_candidate = chain.single_candidate,
              .xtc_draws = chain.xtc_draws,
              .tokens = impl_->sampled,
              .mu = chain.mu};
  if (!impl_->grammar) return state;
  state.grammar = impl_->grammar->save();
  state.grammar.insert(state.grammar.begin(), kMatcherState);
  return state;
}

void Sampler::resume(std::uint32_t seed, const State& state) {
  constexpr std::uint64_t kMaxDraws = 1'000'000'000;
  const bool in_numbers = !state.grammar.empty() && state.grammar.front() == kMatcherState;
  const auto known = [&](TokenId token) {
    return token >= 0 && static_cast<std::size_t>(token) < impl_->tokens &&
           (impl_->vocabulary == nullptr || token < impl_->vocabulary->size());
  };
  if (state.draws > kMaxDraws || state.single_candidate > kMaxDraws || state.xtc_draws > kMaxDraws ||
      !std::isfinite(state.mu) || !std::ranges::all_of(state.history, known) ||
      (!in_numbers && !std::ranges::all_of(state.grammar, known)))
    fail("the sampler's saved state is damaged: use an older snapshot");
  impl_->chain().resume(
      seed,
      {.draws = state.draws, .single_candidate = state.single_candidate, .xtc_draws = state.xtc_draws, .mu = state.mu});
  impl_->options.seed = seed;
  for (const TokenId token : state.history) impl_->remember(token);
  if (in_numbers && impl_->grammar) impl_->grammar->restore(std::span(state.grammar).subspan(1));
  if (!in_numbers)
    for (const TokenId token : state.grammar) impl_->accept(token);
  impl_->sampled = state.tokens;
}

}  // namespace palimpsest
