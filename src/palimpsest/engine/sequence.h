// What one sequence remembers: its cache, its method, and what is done around each step of the model.
//
//   make_room           evict what is due
//   begin               slots for the new tokens
//   the model's step    keys and values are written, attention sees them; the evictor hears of weights: received()
//   end                 the cache is brought back to its budget
//
// Session and Lockstep call them in this order.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr int kDefaultChunk = 512;

struct SessionOptions {
  Method method;
  CacheType cache_type = CacheType::kF16;
  int page_size = 64;
  int chunk = kDefaultChunk;     // tokens of a prompt that go through the model at once
  std::size_t memory_limit = 0;  // bytes of keys and values; more throws Error. 0: what the system gives
  std::vector<TokenId> repeat =
      {};  // how a model is asked to repeat a prompt (engine/repeat.h), if its policy wants it
};

// How a method's cache is attended to in a model with such positions. Throws Error for what does not exist: `cache`
// positions that were learned.
AttentionRule attention_rule(const Method& method, PositionKind kind);

// The cache that a sequence with these options attends to; `shape`: what its decoder asks for; `group`: query heads of
// a KV head.
CacheOptions cache_options(const SessionOptions& options, const CacheOptions& shape, PositionKind kind, int group = 1);

// Tokens that each head may keep, [layers * kv_heads]; empty: all have the method's budget. `head_list`: the file that
// split `duo` stands for. Throws Error for a split that cannot be read or does not fit.
std::vector<int> head_budgets(const Method& method, int layers, int kv_heads, const std::string& head_list = {});

// What policies are told of a model that they were made for.
PolicyModel policy_model(const Model& model, const Method& method);

struct EvictionTimes {      // since the sequence was made
  double evict_ms = 0;      // decisions and moved bytes; not what received() does inside the model's step
  long long evictions = 0;  // plans that dropped a token
};

class Sequence final : AttentionReceiver {
 public:
  // `workers` carry what the mechanisms shift and gather move; `pool`: of several sequences, nullptr: one of its own.
  // Throws Error.
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
           std::shared_ptr<PagePool> pool = nullptr);

  // Drops what is due. How many of `wanted` tokens may go through the model at once now.
  std::size_t make_room(std::size_t wanted, Moment moment, bool all_logits);
  // Takes slots for the tokens. The step's share of this sequence; its rows of logits may be more than were asked for:
  // the last ones are those of `tokens`.
  SequenceStep begin(std::span<const TokenId> tokens, bool all_logits);
  void end(std::size_t tokens, Moment moment);
  void pretend(int tokens);  // begin without a model

  // Whether the model is to repeat a prompt that it has read. Then its last chunk's end is Moment::kPrompt; steps of
  // begin_repeat and end_repeat follow until `from`, 0 at first, has come to the prompt's end; then end(0, kPromptEnd).
  bool repeats() const { return evictor_.needs().repeat; }
  SequenceStep begin_repeat(std::span<const TokenId> prompt, std::size_t& from);
  void end_repeat();
  void clear();

  // This sequence read what `kept` holds, see Cache::share().
  void go_on_from(Cache& kept);
  Cache& cache() { return *cache_; }  // to be shared

  // The cache and what is beside it (engine/snapshot.h).
  void save(ByteWriter& out) const;
  bool accepts(ByteReader in) const;  // whether they were saved with a cache of this shape, type and page size
  void load(ByteReader& in);          // throws Error and is empty then

  const SessionOptions& options() const { return options_; }
  const Cache& cache() const { return *cache_; }
  const AttentionRule& rule() const { return rule_; }
  int budget(int table) const { return evictor_.budget(table); }
  const Evictor& evictor() const { return evictor_; }
  const EvictionTimes& times() const { return times_; }

 private:
  void received(int layer, int kv_head) override;
  void born(int layer, int kv_head, Rows keys, Rows values) override;
  void asked(int layer, int query_head, Rows queries) override;
  SequenceStep begin(std::span<const TokenId> tokens, bool all_logits, bool repeating);
  std::size_t weights_wanted(int table) const;  // of its slots, and of tokens merged into them
  void show(int coming, Moment moment);
  void evict(int coming, Moment moment);

  SessionOptions options_;
  Evictor evictor_;
  AttentionRule rule_;
  std::vector<std::int32_t> windows_;         // of each head, if they differ
  std::vector<std::size_t> rope_of_;          // [layers] which of the model's rotary tables
  std::vector<RopeFrequencies> frequencies_;  // [layers] for delta re-rotation and queries to come; else empty
  int group_ = 1;                             // query heads of a KV head
  float scale_ = 0;                           // of attention
  std::shared_ptr<Workers> workers_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<float>> weights_;   // [kv_heads][slots], of the layer that runs; if the policy needs them
  std::vector<std::vector<float>> sums_;      // likewise: over all queries of the step
  std::vector<float*> weights_of_, sums_of_;  // [layers * kv_heads]
  EvictionTimes times_;
  std::vector<TokenId> window_;  // without a cache: the tokens that are read anew
  std::vector<TokenId> part_;    // of a prompt that is repeated
};

}  // namespace palimpsest
