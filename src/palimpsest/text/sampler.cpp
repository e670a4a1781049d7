#include "palimpsest/text/sampler.h"

#include <llama.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <random>
#include <string_view>
#include <utility>
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

// libllama prints what it has against a grammar, and all of the grammar, to stderr: led into memory for our own
// message. That stream is never closed: another thread may just be printing to it.
class StderrKept {
 public:
  StderrKept() {
#ifdef __GLIBC__
    static FILE* const memory = open_memstream(&text_, &size_);
    if (memory == nullptr) return;
    std::rewind(memory);
    stderr = memory;
#endif
  }
  ~StderrKept() {
    end();
  }
  StderrKept(const StderrKept&) = delete;
  StderrKept& operator=(const StderrKept&) = delete;
  std::string first_line() {
    end();
    const std::string_view all(text_ == nullptr ? "" : text_, size_);
    return std::string(all.substr(0, std::min<std::size_t>(all.find('\n'), 200)));
  }

 private:
  void end() {
#ifdef __GLIBC__
    if (FILE* const memory = std::exchange(stderr, before_); memory != before_) std::fflush(memory);
#endif
  }
  static inline std::mutex one_at_a_time_;
  static inline char* text_ = nullptr;
  static inline std::size_t size_ = 0;  // as far as the last one printed
  std::lock_guard<std::mutex> lock_{one_at_a_time_};
  FILE* const before_ = stderr;
};

llama_sampler* init_grammar(const Vocabulary& vocabulary, const std::string& grammar) {
  StderrKept kept;
  llama_sampler* const made = llama_sampler_init_grammar(vocabulary.handle(), grammar.c_str(), "root");
  if (made != nullptr) return made;
  std::string why = kept.first_line();
  const std::string_view before = "parse: error parsing grammar: ";
  if (why.starts_with(before)) why.erase(0, before.size());
  fail("the grammar is not valid GBNF, or has no rule `root`{}{}", why.empty() ? "" : ": ", why);
}

}  // namespace

struct Sampler::Impl {
  Chain chain{nullptr, llama_sampler_free};
  Chain grammar{nullptr, llama_sampler_free};
  llama_sampler* penalties = nullptr;  // in the chain
  llama_sampler* dice = nullptr;       // in the chain; nullptr: greedy
  std::vector<llama_token_data> candidates;
  SamplerOptions options;
  State state;

  bool looks_back() const { return penalties != nullptr || grammar != nullptr; }
  void apply(llama_token_data_array& array) {
    llama_sampler_apply(chain.get(), &array);
    ++(array.size > 1 ? state.draws : state.certain);
  }

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
  impl_->options = o;
  if (o.seed == 0xFFFFFFFFU) impl_->options.seed = std::random_device()();
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
    add(impl_->dice = llama_sampler_init_dist(impl_->options.seed));
  }
  if (!o.grammar.empty()) impl_->grammar.reset(init_grammar(*vocabulary, o.grammar));
}

Sampler::~Sampler() = default;

// The grammar looks at the one chosen token first; only if it objects, at all of them: that is much cheaper.
TokenId Sampler::sample(std::span<const float> logits) {
  assert(logits.size() == impl_->candidates.size());
  llama_token_data_array array = impl_->fill(logits);
  impl_->apply(array);
  TokenId token = impl_->chosen(array);
  if (impl_->grammar && !impl_->allowed(token)) {
    array = impl_->fill(logits);
    llama_sampler_apply(impl_->grammar.get(), &array);
    impl_->apply(array);
    token = impl_->chosen(array);
    if (!impl_->allowed(token)) fail("the grammar allows no token here: it cannot be met with this vocabulary");
  }
  llama_sampler_accept(impl_->chain.get(), token);
  if (impl_->grammar) llama_sampler_accept(impl_->grammar.get(), token);
  if (impl_->looks_back()) impl_->state.sampled.push_back(token);
  return token;
}

void Sampler::accept(TokenId prompt_token) {
  if (impl_->penalties == nullptr) return;
  llama_sampler_accept(impl_->penalties, prompt_token);
  impl_->state.prompt.push_back(prompt_token);
}

std::uint32_t Sampler::seed() const {
  return impl_->options.seed;
}

const SamplerOptions& Sampler::options() const {
  return impl_->options;
}

Sampler::State Sampler::state() const {
  return impl_->state;
}

// libllama's dice cannot be copied out: they are thrown as often as they were.
void Sampler::resume(std::uint32_t seed, const State& state) {
  assert(impl_->state.draws + impl_->state.certain == 0);
  if (impl_->dice != nullptr && seed != impl_->options.seed) {
    llama_sampler* const chain = impl_->chain.get();  // the dice are its last
    llama_sampler_free(llama_sampler_chain_remove(chain, llama_sampler_chain_n(chain) - 1));
    llama_sampler_chain_add(chain, impl_->dice = llama_sampler_init_dist(seed));
  }
  impl_->options.seed = seed;
  for (const TokenId token : state.prompt) accept(token);
  for (const TokenId token : state.sampled) {
    llama_sampler_accept(impl_->chain.get(), token);
    if (impl_->grammar) llama_sampler_accept(impl_->grammar.get(), token);
  }
  for (const auto& [times, size] : {std::pair{state.draws, std::size_t{2}}, std::pair{state.certain, std::size_t{1}}})
    for (std::uint64_t i = 0; impl_->dice != nullptr && i < times; ++i) {
      llama_token_data two[] = {{0, 1, 0}, {1, 0, 0}};
      llama_token_data_array array{two, size, -1, false};
      llama_sampler_apply(impl_->dice, &array);
    }
  impl_->state = state;
}

}  // namespace palimpsest
