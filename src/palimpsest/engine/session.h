// One sequence: a cache, a method, and the step loop evict -> insert -> attend.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/cache/cache.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/model/decoder.h"

namespace palimpsest {

struct SessionOptions {
  Method method;
  CacheType cache_type = CacheType::kF16;
  int page_size = 64;
  int chunk = 512;  // tokens of a prompt that go through the model at once
};

class Session {
 public:
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options);

  // Called after each chunk with the tokens done so far; returning false stops between chunks.
  using Progress = std::function<bool(int done, int total)>;

  // Reads tokens in chunks; the cache is brought back to its budget after each. Logits of the last token.
  std::span<const float> prefill(std::span<const TokenId> tokens, const Progress& progress = {});
  // One token in, logits of the next out. At most `budget` tokens are attended to, this one included.
  std::span<const float> decode(TokenId token);
  // Teacher-forced reading: `visit(i, logits)` for each token's successor distribution, chunk by chunk.
  using Visit = std::function<void(int index, std::span<const float> logits)>;
  void read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress = {});

  void clear();
  const Cache& cache() const { return *cache_; }
  const Method& method() const { return options_.method; }
  const SessionOptions& options() const { return options_; }
  Position position() const { return cache_->next(); }

 private:
  std::span<const float> step(std::span<const TokenId> tokens, bool all_logits);

  std::shared_ptr<Decoder> decoder_;
  SessionOptions options_;
  AttentionRule rule_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<Evictor> evictor_;
};

}  // namespace palimpsest
