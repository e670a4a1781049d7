// One sequence: a cache, a method, and the step loop evict -> insert -> attend.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/cache/footprint.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/model/decoder.h"

namespace palimpsest {

struct SessionOptions {
  Method method;
  CacheType cache_type = CacheType::kF16;
  int page_size = 64;
  int chunk = 512;               // tokens of a prompt that go through the model at once
  std::size_t memory_limit = 0;  // bytes of keys and values; more throws Error. 0: what the system gives
};

// How a method's cache is attended to in a model with these rotary positions. Throws Error for what does not exist:
// cache positions without rotary positions, two-query where evictions come in bunches.
AttentionRule attention_rule(const Method& method, RopeKind rope);

// The cache that a session with these options attends to; `shape`: what its decoder asks for.
CacheOptions cache_options(const SessionOptions& options, const CacheOptions& shape, RopeKind rope);

// What a head holds at the most: while the model writes token by token, and while `prompt` tokens go through it in
// chunks (no fewer than the former). `tokens`: how many there will be in all; -1: no end.
struct Occupancies {
  Occupancy writing, reading;
};
Occupancies occupancies(const SessionOptions& options, RopeKind rope, long long prompt, long long tokens);

class Session {
 public:
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options);  // throws Error

  // Called after each chunk with the tokens done so far; returning false stops between chunks.
  using Progress = std::function<bool(long long done, long long total)>;

  // Reads tokens (at least one) in chunks; the cache is brought back to its budget after each. Logits of the last token
  // read. A method of sinks + window gives exactly what token by token gives, whatever the chunk.
  std::span<const float> prefill(std::span<const TokenId> tokens, const Progress& progress = {});
  // One token in, logits of the next out. At most budget + every - 1 tokens are attended to, this one included.
  std::span<const float> decode(TokenId token);
  // Teacher-forced reading: `visit(i, logits)` for each token's successor distribution, chunk by chunk.
  using Visit = std::function<void(long long index, std::span<const float> logits)>;
  void read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress = {});
  // As if `tokens` tokens had been read, without running the model: slots are taken and given up, but nobody wrote
  // their keys and values. For speed benches, which fill the pages themselves.
  void pretend(long long tokens);

  void clear();
  const Cache& cache() const { return *cache_; }
  const Decoder& decoder() const { return *decoder_; }
  const Method& method() const { return options_.method; }
  const SessionOptions& options() const { return options_; }
  Position position() const { return cache_->next(); }

 private:
  std::size_t chunk_that_fits(std::size_t wanted) const;
  std::span<const float> step(std::span<const TokenId> tokens, bool all_logits);
  template <typename Done>
  void in_chunks(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done);

  std::shared_ptr<Decoder> decoder_;
  SessionOptions options_;
  AttentionRule rule_;
  std::unique_ptr<Cache> cache_;
  Evictor evictor_;
};

}  // namespace palimpsest
