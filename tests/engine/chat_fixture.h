// Shared by the tests of histories: chats that resend all their tokens, and sessions that never do.
#pragma once

#include "tests/engine/scheduler_fixture.h"

namespace palimpsest::testing {

using Tokens = std::vector<TokenId>;

inline Tokens random_text(std::mt19937& random, std::size_t count) {
  Tokens tokens(count);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random() % kVocabulary);
  return tokens;
}

inline void append(Tokens& to, std::span<const TokenId> tokens) {
  to.insert(to.end(), tokens.begin(), tokens.end());
}

inline Request chat_request(Tokens prompt, const std::string& method, long long max_tokens) {
  Request r;
  r.prompt = std::move(prompt);
  r.method = parse_method(method);
  r.max_tokens = max_tokens;
  r.sampler.temperature = 0;
  r.reuse = Reuse::kHistories;
  return r;
}

inline SchedulerOptions chat_options(std::size_t pool_bytes = std::size_t{8} << 20) {
  SchedulerOptions options = small_options();
  options.pool_bytes = pool_bytes;
  options.prefix_bytes = pool_bytes;
  return options;
}

inline std::shared_ptr<Answer> ask(Scheduler& scheduler, const Request& request) {
  auto answer = std::make_shared<Answer>();
  scheduler.submit(request, answer);
  while (scheduler.step()) {
  }
  EXPECT_EQ(answer->ended, 1) << "step() said that nothing is left to do";
  EXPECT_EQ(answer->how, Finish::kLength) << answer->usage.error;
  return answer;
}

// A session that reads and writes each token once.
struct OneSession {
  explicit OneSession(const std::string& method) : session(small_decoder(), options_of(method)) {}
  static SessionOptions options_of(const std::string& method) {
    SessionOptions options;
    options.method = parse_method(method);
    options.cache_type = CacheType::kF32;
    options.page_size = 16;
    options.chunk = kChunk;
    return options;
  }
  // Reads what is new, and answers. The last token of the answer is read with the next call's.
  Tokens answer(const Tokens& more, long long max_tokens) {
    append(unread, more);
    SamplerOptions greedy;
    greedy.temperature = 0;
    Sampler sampler(greedy, nullptr, kVocabulary);
    Tokens out = {sampler.sample(session.prefill(unread))};
    while (std::ssize(out) < max_tokens) out.push_back(sampler.sample(session.decode(out.back())));
    unread = {out.back()};
    return out;
  }
  Session session;
  Tokens unread;
};

// Two kinds of methods evict only inside and after prompts (snapkv, adakv); two read a prompt twice or keep their
// scores apart (kvzip, expected-attention).
inline const char* const kChatMethods[] = {"full",
                                           "streaming:budget=40",
                                           "streaming:budget=48,every=8",
                                           "streaming:budget=40,mechanism=shift",
                                           "h2o:budget=40",
                                           "h2o:budget=40,every=8,mechanism=gather",
                                           "h2o:budget=33,positions=cache",
                                           "h2o:budget=33,positions=auto",
                                           "h2o:budget=40,max-drop=2",
                                           "lazy:budget=40,every=6",
                                           "knorm:budget=40,mechanism=append",
                                           "tova:budget=40",
                                           "snapkv:budget=48",
                                           "adakv:budget=60,schedule=prompt+step",
                                           "h2o:budget=40,recent=8,split=ada",
                                           "kvzip:budget=48",
                                           "lagkv:budget=60",
                                           "r-kv:budget=40",
                                           "expected-attention:budget=40,every=8",
                                           "ems:budget=40,recent=8,tau=0.1",
                                           "snapkv:budget=48,mechanism=match",
                                           "keydiff:budget=40,every=16,mechanism=match",
                                           "paged-eviction:budget=64",
                                           "keydiff:budget=40,pin=0-5+12-15,positions=cache",
                                           "streaming:budget=40,pin=0-11"};

}  // namespace palimpsest::testing
