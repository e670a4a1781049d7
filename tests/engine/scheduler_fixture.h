// Shared by the scheduler's tests: a small model, random requests, and the result of a request that runs alone.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/engine/sequence/released_sequence.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/model/synthetic/synthetic.h"

namespace palimpsest::testing {

inline constexpr int kVocabulary = 96, kChunk = 24;

inline std::shared_ptr<Decoder> small_decoder(int threads = 1) {
  static const std::shared_ptr<const Model> model = Model::from(make_synthetic({.vocabulary = kVocabulary,
                                                                                .width = 64,
                                                                                .layers = 2,
                                                                                .feed_forward = 96,
                                                                                .query_heads = 4,
                                                                                .kv_heads = 2,
                                                                                .head_dim = 16}));
  return std::make_shared<Decoder>(model, threads);
}

inline SchedulerOptions small_options() {
  SchedulerOptions options;
  options.cache_type = CacheType::kF32;
  options.page_size = 16;
  options.chunk = kChunk;
  options.step_tokens = 64;
  options.max_sequences = 8;
  options.max_queue = 1000;
  options.pool_bytes = std::size_t{1} << 20;
  return options;
}

// A request's result. The scheduler's thread writes it; others read it after the end.
struct Answer final : RequestListener {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  Finish how = Finish::kFailed;
  Usage usage;
  std::atomic<int> ended = 0;
  std::atomic<bool> open = true;
  std::size_t enough = SIZE_MAX;
  std::vector<std::byte> snapshot;
  bool hold = false;  // hold the snapshot instead of writing it
  std::shared_ptr<const KeptSequence> held;

  bool ready() override { return open; }
  bool written(const SampledToken& token) override {
    EXPECT_EQ(ended, 0);
    tokens.push_back(token.token);
    logprobs.push_back(token.logprob);
    return tokens.size() < enough;
  }
  void kept(std::shared_ptr<const KeptSequence> sequence) override {
    EXPECT_EQ(ended, 0);
    if (hold) {
      held = std::move(sequence);
      return;
    }
    ByteWriter out([&](std::span<const std::byte> data) { snapshot.insert(snapshot.end(), data.begin(), data.end()); });
    sequence->write(out);
  }
  void finished(Finish finish, const Usage& u) override {
    how = finish;
    usage = u;
    ++ended;
  }
};

inline const char* const kMethods[] = {"full",
                                       "streaming:budget=40",
                                       "streaming:budget=48,every=8",
                                       "h2o:budget=40",
                                       "h2o:budget=33,positions=cache",
                                       "h2o:budget=33,positions=auto",
                                       "sparse:budget=40",
                                       "streaming:budget=40,mechanism=shift",
                                       "lazy:budget=40,every=6",
                                       "streaming:budget=40,rerotate=recompute"};

// Two of three prompts start with a common prefix.
inline Request random_request(std::mt19937& random) {
  Request r;
  std::vector<TokenId> prompt(1 + random() % 90);
  for (TokenId& t : prompt) t = static_cast<TokenId>(random() % kVocabulary);
  if (const unsigned text = random() % 3; text > 0) {
    std::mt19937 words(text);
    const std::size_t shared = prompt.size() * 4 / 5;
    for (std::size_t i = 0; i < shared; ++i) prompt[i] = static_cast<TokenId>(words() % kVocabulary);
  }
  r.prompt = std::move(prompt);
  r.method = parse_method(kMethods[random() % std::size(kMethods)]);
  r.max_tokens = 1 + random() % 40;
  r.sampler.temperature = random() % 2 == 0 ? 0.0F : 1.0F;
  r.sampler.seed = random();
  return r;
}

inline std::vector<TokenId> alone(const Request& request) {
  SessionOptions options;
  options.method = request.method;
  options.cache_type = CacheType::kF32;
  options.page_size = 16;
  options.chunk = kChunk;
  Session session(small_decoder(), options);
  Sampler sampler(request.sampler, nullptr, kVocabulary);
  for (const TokenId t : request.prompt) sampler.accept(t);
  std::vector<TokenId> out = {sampler.sample(session.prefill(request.prompt))};
  while (static_cast<long long>(out.size()) < request.max_tokens)
    out.push_back(sampler.sample(session.decode(out.back())));
  return out;
}

}  // namespace palimpsest::testing
