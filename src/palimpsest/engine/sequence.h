// What one sequence remembers: its cache, its method, and which tokens it has yet to read. It owns its stage:
//
//   read(prompt)   kPrompt   in chunks; each is followed by an eviction down to the budget
//                  kRepeat   if its policy wants it, the model repeats the prompt, to be watched (Signals::repeat)
//   read(token)    kDecode   one token, that was just sampled
//
// A step of the model (engine/step_loop.h) is next(), the model, done(). While the model runs, keys and values are
// written, attention sees them, and the evictor hears of weights: on_weights().
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr int kDefaultChunk = 512;

struct SessionOptions {
  Method method;
  CacheTypes cache_type = {};  // of keys and of values
  int page_size = 64;
  int chunk = kDefaultChunk;     // tokens of a prompt that go through the model at once
  std::size_t memory_limit = 0;  // bytes of keys and values; more throws Error. 0: what the system gives
  std::vector<TokenId> repeat =
      {};  // how a model is asked to repeat a prompt (engine/repeat.h), if its policy wants it
};

// What a method is planned for in this decoder's model and on its device; nothing is allocated.
PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options);
// The same on the CPU's own path, without a decoder and without the model itself: to count bytes.
PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options);

// What policies are told of a model that they were made for.
PolicyModel policy_model(const Model& model, const Method& method);

struct EvictionTimes {      // since the sequence was made
  double evict_ms = 0;      // decisions and moved bytes; not what on_weights() does inside the model's step
  long long evictions = 0;  // plans that dropped a token
};

// A sequence's share of a step: its tokens, and how they attend to its cache.
using Work = SequenceStep;

class Sequence final : AttentionReceiver {
 public:
  // `workers` carry what the mechanisms shift and gather move; `pool`: of several sequences, nullptr: one of its own.
  // Throws Error.
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
           std::shared_ptr<PagePool> pool = nullptr);
  // `plan`: of plan_target(decoder, options).
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
           std::shared_ptr<Workers> workers, std::shared_ptr<PagePool> pool = nullptr);

  enum class Stage { kIdle, kPrompt, kRepeat, kDecode };
  Stage stage() const { return stage_; }

  // What is to be read; what was not read yet is forgotten, and a prompt that was read in part goes on with the next
  // one. The prompt's tokens must stay where they are. With `all_logits` done() returns the logits of every token, not
  // of the last one only.
  void read(std::span<const TokenId> prompt, bool all_logits = false);
  void read(TokenId token);
  // The cache holds the first `tokens` of the prompt already (go_on_from), but not all.
  void skip(std::size_t tokens);
  std::size_t tokens_read() const { return read_; }  // of the prompt
  // Tokens that have yet to go through the model before there are logits to sample from.
  std::size_t tokens_left() const;
  // next() will name no more than so many. They do not depend on other sequences.
  std::size_t tokens_next() const;

  // Evicts what is due and takes slots for the tokens that are named: a chunk of the prompt, or the token. Not while
  // kIdle. Throws Error or std::bad_alloc; the sequence is of no use then.
  Work next();
  // The model ran. Brings the cache back to its budget. Logits [rows][vocabulary] are those of the work's tokens, all
  // or the last; returns those to go on with: empty while there is more of the prompt (unless all are wanted). Throws
  // as next() does.
  std::span<const float> done(std::span<const float> logits);
  void clear();

  bool repeats() const { return plan_->signals().repeat; }  // the model repeats a prompt that it has read

  // This sequence read what `kept` holds, see Cache::share().
  void go_on_from(Cache& kept);
  Cache& cache() { return *cache_; }  // to be shared

  // The cache and what is beside it (engine/snapshot.h).
  void save(ByteWriter& out) const;
  // What they were saved with that the plan's cache has not (Cache::mismatch); empty: nothing.
  static std::string mismatch(const MethodPlan& plan, ByteReader in);
  void load(ByteReader& in);  // throws Error and is empty then
  // The same in parts, see Cache::load_tables.
  void load_tables(ByteReader& in);
  bool take_pages(int max) { return cache_->take_pages(max); }
  void load_pages(ByteReader& in);

  const SessionOptions& options() const { return options_; }
  const Cache& cache() const { return *cache_; }
  const MethodPlan& plan() const { return *plan_; }
  const AttentionRule& rule() const { return plan_->rule(); }
  int budget(int table) const { return evictor_.budget(table); }
  const Evictor& evictor() const { return evictor_; }
  const EvictionTimes& times() const { return times_; }

 private:
  // On the threads of the model's step, which no exception may leave: done() throws it.
  void on_weights(int head) noexcept override;
  void on_insert_kv(int head, Rows keys, Rows values) noexcept override;
  void on_queries(int head, int member, Rows queries) noexcept override;
  template <typename Hear>
  void guarded(Hear hear) noexcept;
  std::size_t make_room();
  SequenceStep insert(std::span<const TokenId> tokens);
  std::span<const TokenId> next_repeated();
  void end(std::size_t tokens, Phase phase);
  Phase phase() const {
    return stage_ == Stage::kDecode ? Phase::kDecode : stage_ == Stage::kRepeat ? Phase::kRepeat : Phase::kPrefill;
  }
  std::size_t weights_wanted(int head) const;  // of its slots, and of tokens merged into them
  std::span<float> query_statistics(int head);
  void show(int coming, Phase phase);
  void evict(int coming, Phase phase);
  bool drop(const Plan& plan, bool unseen);

  SessionOptions options_;
  std::shared_ptr<const MethodPlan> plan_;
  Evictor evictor_;
  std::vector<std::size_t> rope_of_;          // [layers] which of the model's rotary tables
  std::vector<RopeFrequencies> frequencies_;  // [layers] for delta re-rotation and queries to come; else empty
  float scale_ = 0;                           // of attention
  std::shared_ptr<Workers> workers_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<float>> weights_;   // of the layer that runs, [its KV heads][slots]; if the policy needs them
  std::vector<std::vector<float>> sums_;      // likewise: over all queries of the step
  std::vector<float*> weights_of_, sums_of_;  // [heads]
  EvictionTimes times_;
  std::vector<TokenId> window_;  // without a cache: the tokens that are read anew

  Stage stage_ = Stage::kIdle;
  std::span<const TokenId> prompt_;
  TokenId token_ = -1;  // kDecode
  bool all_logits_ = false;
  bool goes_on_ = false;                 // what was read last is the beginning of the next prompt
  std::size_t read_ = 0, repeated_ = 0;  // tokens of the prompt
  std::size_t running_ = 0;              // tokens that next() named
  std::size_t step_tokens_ = 0;          // likewise, with those of a window that is read anew
  std::vector<TokenId> part_;            // of a prompt that is repeated
  std::vector<float> logits_;            // of the prompt's last token, while it is repeated
  std::atomic_flag hearing_failed_;      // on_weights(), on_insert_kv() or on_queries() threw, on any thread
  std::exception_ptr failure_;           // what they threw first
};

}  // namespace palimpsest
