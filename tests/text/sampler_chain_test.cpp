// Random combinations of sampler options: against libllama's own chain of samplers, and saved and resumed.
#include "palimpsest/text/sampler_chain.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/sampler_fields.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

using Random = std::mt19937;

bool coin(Random& random, int of = 2) {
  return random() % static_cast<unsigned>(of) == 0;
}

float between(Random& random, float low, float high) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

SamplerOptions random_options(Random& random, int tokens) {
  SamplerOptions o;
  o.seed = random() % 1'000'000;
  o.temperature = coin(random, 5) ? 0 : between(random, 0.2F, 2);
  o.top_k = coin(random) ? 0 : static_cast<int>(random() % 60);
  o.top_p = coin(random) ? 1 : between(random, 0, 1);
  o.min_p = coin(random) ? 0 : between(random, 0, 0.3F);
  if (coin(random, 3))
    for (int i = 0; i < 5; ++i)
      o.logit_bias.emplace_back(static_cast<TokenId>(random() % static_cast<unsigned>(tokens)),
                                coin(random) ? -100 : between(random, -5, 5));
  if (coin(random)) o.repeat_penalty = between(random, 0.8F, 2);
  if (coin(random)) o.frequency_penalty = between(random, -1, 1);
  if (coin(random)) o.presence_penalty = between(random, -1, 1);
  o.penalty_last_n = static_cast<int>(random() % 40);
  if (coin(random)) {
    o.dry_multiplier = between(random, 0.1F, 3);
    o.dry_base = between(random, 1, 3);
    o.dry_allowed_length = static_cast<int>(random() % 4);
    o.dry_penalty_last_n = static_cast<int>(random() % 100);
    if (coin(random)) o.dry_breakers = {"e", " the"};
  }
  if (coin(random, 3)) o.top_n_sigma = between(random, 0.5F, 4);
  if (coin(random)) o.typical_p = between(random, 0.1F, 1);
  if (coin(random, 3)) o.min_keep = static_cast<int>(random() % 10);
  if (coin(random)) o.xtc_probability = between(random, 0, 1), o.xtc_threshold = between(random, 0, 0.6F);
  if (coin(random)) o.dynatemp_range = between(random, 0, 1), o.dynatemp_exponent = between(random, 0.5F, 2);
  if (coin(random, 3)) {
    o.mirostat = 1 + static_cast<int>(random() % 2);
    o.mirostat_tau = between(random, 1, o.mirostat == 1 ? 3 : 8);  // version 1 of libllama overflows an int at more
    o.mirostat_eta = between(random, 0, o.mirostat == 1 ? 0.1F : 0.5F);
  }
  if (coin(random, 3)) std::shuffle(o.samplers.begin(), o.samplers.end(), random);
  if (coin(random, 3)) o.samplers.resize(random() % 10);
  return o;
}

// A few tokens are likely, so that texts repeat.
std::vector<float> random_logits(Random& random, int tokens) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(static_cast<std::size_t>(tokens));
  for (float& each : logits) each = normal(random);
  for (std::size_t i = 300; i < 310; ++i) logits[i] += 6;
  return logits;
}

llama_sampler* one(SamplerKind kind, const SamplerOptions& o, const Vocabulary& vocabulary, int tokens) {
  const auto keep = static_cast<std::size_t>(o.min_keep);
  switch (kind) {
    case SamplerKind::kPenalties:
      return llama_sampler_init_penalties(tokens, o.penalty_last_n, o.repeat_penalty, o.frequency_penalty,
                                          o.presence_penalty);
    case SamplerKind::kDry: {
      std::vector<const char*> breakers;
      for (const std::string& each : o.dry_breakers) breakers.push_back(each.c_str());
      return llama_sampler_init_dry(llama_model_get_vocab(vocabulary.model()), o.dry_multiplier, o.dry_base,
                                    o.dry_allowed_length, o.dry_penalty_last_n, breakers.data(), breakers.size());
    }
    case SamplerKind::kTopNSigma:
      return llama_sampler_init_top_n_sigma(o.top_n_sigma);
    case SamplerKind::kTopK:
      return llama_sampler_init_top_k(o.top_k);
    case SamplerKind::kTypicalP:
      return llama_sampler_init_typical(o.typical_p, keep);
    case SamplerKind::kTopP:
      return llama_sampler_init_top_p(o.top_p, keep);
    case SamplerKind::kMinP:
      return llama_sampler_init_min_p(o.min_p, keep);
    case SamplerKind::kXtc:
      return llama_sampler_init_xtc(o.xtc_probability, o.xtc_threshold, keep, o.seed);
    case SamplerKind::kTemperature:
      break;
  }
  return llama_sampler_init_temp_ext(o.temperature, o.dynatemp_range, o.dynatemp_exponent);
}

// The chain as a user of libllama builds it, and the sampling of llama_sampler_sample().
class LlamaChain {
 public:
  LlamaChain(const SamplerOptions& o, const Vocabulary& vocabulary, int tokens)
      : chain_(llama_sampler_chain_init(llama_sampler_chain_default_params()), llama_sampler_free) {
    std::vector<llama_logit_bias> bias;
    for (const auto& [token, value] : o.logit_bias) bias.push_back({token, value <= -100 ? -INFINITY : value});
    add(llama_sampler_init_logit_bias(tokens, static_cast<std::int32_t>(bias.size()), bias.data()));
    for (const SamplerKind kind : o.samplers) {
      const bool tail = o.mirostat == 0 && o.temperature > 0;
      if (kind == SamplerKind::kPenalties || kind == SamplerKind::kDry || tail ||
          (kind == SamplerKind::kTemperature && o.temperature > 0))
        add(one(kind, o, vocabulary, tokens));
    }
    if (o.temperature <= 0) {
      add(llama_sampler_init_greedy());
      return;
    }
    if (o.mirostat == 0) add(llama_sampler_init_dist(o.seed));
    if (o.mirostat == 1) add(llama_sampler_init_mirostat(tokens, o.seed, o.mirostat_tau, o.mirostat_eta, 100));
    if (o.mirostat == 2) add(llama_sampler_init_mirostat_v2(o.seed, o.mirostat_tau, o.mirostat_eta));
  }
  TokenId sample(const std::vector<float>& logits) {
    std::vector<llama_token_data> all;
    for (std::size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<TokenId>(i), logits[i], 0});
    llama_token_data_array array{all.data(), all.size(), -1, false};
    llama_sampler_apply(chain_.get(), &array);
    const TokenId token = array.data[array.selected].id;
    accept(token);
    return token;
  }
  void accept(TokenId token) { llama_sampler_accept(chain_.get(), token); }

 private:
  void add(llama_sampler* sampler) { llama_sampler_chain_add(chain_.get(), sampler); }
  std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> chain_;
};

std::string text_of(const SamplerOptions& options) {
  std::string out;
  for (const SamplerField& field : sampler_fields())
    std::visit([&](auto member) { out += fmt::format(" {}={}", field.name, options.*member); }, field.member);
  for (const SamplerKind kind : options.samplers) out += fmt::format(" {}", name_of(kind));
  return out;
}

TEST(SamplerChain, SamplesAsLibllamasChain) {
  const auto vocabulary = Vocabulary::load(default_model());
  const int tokens = vocabulary->size();
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SamplerOptions options = random_options(random, tokens);
    if (options.typical_p < 1)
      options.top_n_sigma = -1, options.logit_bias.clear();  // see ImpossibleTokensChangeNothing
    Sampler ours(options, vocabulary.get(), tokens);
    LlamaChain theirs(options, *vocabulary, tokens);
    for (int i = 0; i < 20; ++i) {
      const auto token = static_cast<TokenId>(300 + random() % 10);
      ours.accept(token);
      theirs.accept(token);
    }
    for (int i = 0; i < 60; ++i) {
      const auto logits = random_logits(random, tokens);
      ASSERT_EQ(ours.sample(logits), theirs.sample(logits)) << "token " << i << text_of(options);
    }
  }
}

// A sampler that is saved and resumed samples what one that is not would.
TEST(SamplerChain, ResumesExactly) {
  const auto vocabulary = Vocabulary::load(default_model());
  const int tokens = vocabulary->size();
  for (unsigned seed = 1000; seed < test_length(1080U, 1200U, 1020U); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    SamplerOptions options = random_options(random, tokens);
    if (coin(random, 3))
      options.grammar = "root ::= [a-z ]*";
    else if (coin(random))
      options.min_tokens = static_cast<long long>(random() % 80), options.stop_tokens = {300, 301, 302};
    Sampler whole(options, vocabulary.get(), tokens);
    for (TokenId token = 0; token < 30; ++token) whole.accept(300 + token % 7);
    const unsigned before = random() % 60;
    std::vector<float> logits;
    bool over = false;
    const auto next = [&](Sampler& sampler) {
      const TokenId token = sampler.sample(logits);
      over = over || vocabulary->is_end(token);
      return token;
    };
    for (unsigned i = 0; i < before && !over; ++i) {
      logits = random_logits(random, tokens);
      next(whole);
    }
    SamplerOptions again = options;
    again.seed = kRandomSeed;  // the state's seed counts
    Sampler resumed(again, vocabulary.get(), tokens);
    resumed.resume(whole.seed(), whole.state());
    ASSERT_EQ(resumed.state(), whole.state());
    for (int i = 0; i < 60 && !over; ++i) {
      logits = random_logits(random, tokens);
      ASSERT_EQ(next(resumed), next(whole)) << "token " << i;
    }
    ASSERT_EQ(resumed.state(), whole.state());
  }
}

TEST(SamplerChain, MinTokensForbidsEnds) {
  const auto vocabulary = Vocabulary::load(default_model());
  const int tokens = vocabulary->size();
  TokenId end = 0;
  while (!vocabulary->is_end(end)) ++end;
  constexpr TokenId kStop = 300, kOther = 301;
  std::vector<float> logits(static_cast<std::size_t>(tokens), 0);
  logits[static_cast<std::size_t>(end)] = 30;
  logits[kStop] = 20;
  logits[kOther] = 10;
  Sampler sampler({.temperature = 0, .min_tokens = 3, .stop_tokens = {kStop}}, vocabulary.get(), tokens);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(sampler.sample(logits), kOther);
  EXPECT_EQ(sampler.sample(logits), end);
  EXPECT_TRUE(sampler.stops_at(kStop));
  EXPECT_FALSE(sampler.stops_at(kOther));
}

// Greedy is the likeliest token: XTC and typical_p could remove it.
TEST(SamplerChain, GreedyIgnoresTruncation) {
  Random random(3);
  for (const float temperature : {0.0F, -1.0F}) {
    Sampler sampler({.temperature = temperature,
                     .typical_p = 0.1F,
                     .xtc_probability = 1,
                     .xtc_threshold = 0,
                     .dynatemp_range = 1,
                     .mirostat = 2},
                    nullptr, 400);
    for (int i = 0; i < 50; ++i) {
      const auto logits = random_logits(random, 400);
      EXPECT_EQ(sampler.sample(logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
  }
}

// A token that the grammar refuses was not written: its surprise does not count.
TEST(SamplerChain, MirostatForgetsRefusedTokens) {
  const auto vocabulary = Vocabulary::load(default_model());
  Random random(4);
  SamplerOptions options;
  options.mirostat = 2;
  options.seed = 1;
  options.grammar = "root ::= \"\xF0\x9F\xA6\x80\"";  // only the token of the first byte begins it
  Sampler sampler(options, vocabulary.get(), vocabulary->size());
  EXPECT_EQ(vocabulary->piece(sampler.sample(random_logits(random, vocabulary->size()))), "\xF0");
  EXPECT_EQ(sampler.state().draws + sampler.state().single_candidate, 2u);  // one was refused
  EXPECT_FLOAT_EQ(sampler.state().mu, 2 * 5 + 0.1F * 5);                    // a single candidate has no surprise
}

// libllama's typical_p and Mirostat compute with the logarithms of all candidates' probabilities.
TEST(SamplerChain, ImpossibleTokensChangeNothing) {
  const auto sampled = [](SamplerOptions options, bool impossible) {
    options.seed = 5;
    Random random(6);
    Sampler sampler(options, nullptr, impossible ? 410 : 400);
    std::vector<TokenId> out;
    for (int i = 0; i < 100; ++i) {
      auto logits = random_logits(random, 400);
      if (impossible) logits.resize(410, i % 2 == 0 ? -std::numeric_limits<float>::infinity() : -500);
      out.push_back(sampler.sample(logits));
    }
    return out;
  };
  for (const SamplerOptions& options :
       {SamplerOptions{.top_k = 0, .top_p = 1, .min_p = 0, .typical_p = 0.5F}, SamplerOptions{.mirostat = 2}})
    EXPECT_EQ(sampled(options, true), sampled(options, false)) << options.mirostat;
}

TEST(SamplerChain, RefusesImpossibleOptions) {
  const auto refused = [](auto change, const char* named) {
    SamplerOptions options;
    change(options);
    EXPECT_NE(error_of([&] { Sampler(options, nullptr, 10); }).find(named), std::string::npos) << named;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  refused([](SamplerOptions& o) { o.dry_multiplier = 1; }, "DRY needs a vocabulary");
  refused([](SamplerOptions& o) { o.dry_multiplier = -1; }, "dry_multiplier is -1");
  refused([](SamplerOptions& o) { o.dry_base = 0.5F; }, "dry_base is 0.5");
  refused([](SamplerOptions& o) { o.dry_allowed_length = -1; }, "dry_allowed_length is -1");
  refused([](SamplerOptions& o) { o.dry_penalty_last_n = -2; }, "dry_penalty_last_n is -2");
  refused([](SamplerOptions& o) { o.dry_penalty_last_n = -1; }, "no trained context");
  refused([](SamplerOptions& o) { o.dry_breakers = {std::string(41, 'x')}; }, "41 bytes");
  refused([](SamplerOptions& o) { o.dry_breakers = {""}; }, "0 bytes");
  refused([](SamplerOptions& o) { o.dry_breakers.resize(33, "x"); }, "33 texts");
  refused([](SamplerOptions& o) { o.penalty_last_n = 1'000'001; }, "repeat_last_n is 1000001");
  refused([](SamplerOptions& o) { o.typical_p = 1.1F; }, "typical_p is 1.1");
  refused([=](SamplerOptions& o) { o.top_n_sigma = nan; }, "top_n_sigma is nan");
  refused([](SamplerOptions& o) { o.min_keep = -1; }, "min_keep is -1");
  refused([](SamplerOptions& o) { o.xtc_probability = 2; }, "xtc_probability is 2");
  refused([](SamplerOptions& o) { o.xtc_threshold = -1; }, "xtc_threshold is -1");
  refused([](SamplerOptions& o) { o.dynatemp_range = -1; }, "dynatemp_range is -1");
  refused([](SamplerOptions& o) { o.dynatemp_exponent = -1; }, "dynatemp_exponent is -1");
  refused([](SamplerOptions& o) { o.mirostat = 3; }, "mirostat is 3");
  refused([=](SamplerOptions& o) { o.mirostat_tau = nan; }, "mirostat_tau is nan");
  refused([](SamplerOptions& o) { o.mirostat_eta = -1; }, "mirostat_eta is -1");
  refused([](SamplerOptions& o) { o.min_tokens = -1; }, "min_tokens is -1");
  refused([](SamplerOptions& o) { o.min_tokens = 1, o.grammar = "x"; }, "min_tokens with a grammar");
  refused([](SamplerOptions& o) { o.stop_tokens = {-1}; }, "stop_token_ids: there is no token -1");
  refused([](SamplerOptions& o) { o.samplers = {SamplerKind::kTopK, SamplerKind::kTopK}; }, "top_k twice");
}

TEST(SamplerChain, SaysSoWhenLogitsAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const int mirostat : {0, 1, 2}) {
    Sampler sampler({.typical_p = 0.9F, .mirostat = mirostat}, nullptr, 100);
    EXPECT_THROW(sampler.sample(std::vector<float>(100, nan)), Error);
  }
}

}  // namespace
}  // namespace palimpsest::testing
