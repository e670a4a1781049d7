// The state of one sequence: its cache, its method, and the tokens to read. It owns its stage:
//
//   read(prompt)   kPrompt   in chunks; each is followed by an eviction down to the budget
//                  kRepeat   with Signals::repeat the model then reads the prompt again, for its weights
//   read(token)    kDecode   one token, just sampled, and drafts: tokens that may follow it
//
// After a step with drafts accept() says how many of them stand. The cache and the policy's statistics are then as if
// each had been read in a step of its own: the drafts' slots are given back, and the accepted tokens take them again
// one by one, with the evictions in between and each one's weights (engine/held_signals.h).
//
// A step (engine/step_loop.h) is next(), the model, done(). The model writes keys and values, attends to them, and
// reports weights to the evictor: on_weights().
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/engine/held_signals.h"
#include "palimpsest/engine/memory_log.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

inline constexpr int kDefaultChunk = 512;

struct SessionOptions {
  Method method;
  CacheTypes cache_type = {};  // of keys and of values
  int page_size = 64;
  int chunk = kDefaultChunk;     // tokens of a prompt per step
  int draft_max = 0;             // max drafts in a step; 0: none. Models with large query groups have fewer
  std::size_t memory_limit = 0;  // max bytes of keys and values; more throws Error. 0: unlimited
  std::size_t auto_memory = 0;   // max bytes of the sequence with budget auto; 0: unlimited
  bool keep_weights = false;     // keep the attention weights of decode steps: Sequence::kept_weights(). CPU path only
  std::vector<TokenId> repeat = {};  // instruction to repeat the prompt (engine/repeat.h), for Signals::repeat
};

// The target of a plan for this decoder's model and device; allocates nothing.
PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options);
// For the CPU path, without a decoder and a model: to compute bytes.
PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options);

// For policies that were trained on a model.
PolicyModel policy_model(const Model& model, const Method& method);

// What the query of a decode step gave each token of a head: the mean over the query group, or what the policy's
// signals reduce it to (Signals::reduction()). In slot order when the step attended; an empty slot has position
// kNoPosition.
struct KeptWeights {
  std::vector<Position> position;  // in the text
  std::vector<float> weight;       // of each position
};

struct EvictionTimes {      // since construction
  double evict_ms = 0;      // decisions and moves; without on_weights(), which runs inside the model's step
  long long evictions = 0;  // plans that evicted a token
};

// A sequence's part of a step: its tokens, and how they attend to its cache.
using Work = SequenceStep;

class Sequence final : AttentionReceiver {
 public:
  // `workers`: for moves of the mechanisms shift and gather, and for scoring; may be nullptr. `pool`: shared by several
  // sequences; nullptr: its own. Throws Error.
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
           std::shared_ptr<PagePool> pool = nullptr);
  // `plan`: of plan_target(decoder, options).
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
           std::shared_ptr<Workers> workers, std::shared_ptr<PagePool> pool = nullptr);

  enum class Stage { kIdle, kPrompt, kRepeat, kDecode };
  Stage stage() const { return stage_; }

  // Checked in evictions; nullptr: none. next() and done() throw Interrupted; the sequence is unusable then.
  void set_interrupt(std::shared_ptr<const Interrupt> interrupt) { interrupt_ = std::move(interrupt); }
  // Records what the cache drops from now on; nullptr: nothing.
  void set_memory_log(std::shared_ptr<MemoryLog> log);

  // Sets the tokens to read. Unread tokens of an earlier call are discarded; a prompt that was read in part continues
  // with the next one. The span must stay valid. With `all_logits` done() returns the rows of every token, not only of
  // the last one. `result`: what these are, of the prompt.
  void read(std::span<const TokenId> prompt, bool all_logits = false, StepResult result = StepResult::kLogits);
  // With `drafts`, tokens that may follow it: done() returns the logits of the token and of the first drafts, as many
  // as there is room for before the next eviction; then call accept(). Without it the next read() forgets all drafts.
  void read(TokenId token, std::span<const TokenId> drafts = {});
  // The first `drafts` of the step's drafts stand; the others are forgotten. Throws as next().
  void accept(int drafts);
  // The cache holds the first `tokens` of the prompt, not all (continue_from).
  void skip(std::size_t tokens);
  std::size_t tokens_read() const { return read_; }  // of the prompt
  // Tokens that the model must read before there are logits to sample from.
  std::size_t tokens_left() const;
  // Max tokens of the next step; does not depend on other sequences.
  std::size_t tokens_next() const;

  // Evicts, and takes slots for the step's tokens: a chunk of the prompt, or the sampled token. Not while kIdle. Throws
  // Error or std::bad_alloc; the sequence is unusable then.
  Work next();
  // Call it after the model ran. Evicts down to the budget. `logits`: [rows][vocabulary], of all tokens of the step or
  // of the last. Returns those to sample from: empty before the prompt's end, unless `all_logits`. Throws as next().
  std::span<const float> done(std::span<const float> logits);
  void rewind(Position position);  // see Session::rewind
  void clear();

  bool repeats() const { return plan_->signals().repeat; }  // the model reads a prompt twice

  // Shares the pages of `kept`, as if this sequence had read its tokens (Cache::share). At least
  // PrefixKey::window tokens of the prompt follow.
  void continue_from(Cache& kept);
  // Continues as the sequence of the same method that had this cache and state(). `in_prompt`: the next tokens belong
  // to the prompt that it read last.
  void continue_from(Cache& kept, std::span<const std::byte> state, bool in_prompt);
  std::vector<std::byte> state() const;  // what it needs besides its cache
  Cache& cache() { return *cache_; }     // to share it

  // The cache and the evictor's state (engine/snapshot.h).
  void save(ByteWriter& out) const;
  // The first difference between the saved cache and the plan's (Cache::mismatch); empty: none.
  static std::string mismatch(const MethodPlan& plan, ByteReader in);
  void load(ByteReader& in);  // throws Error; the sequence is empty then
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
  // Of the last decode step without drafts, if SessionOptions::keep_weights. Empty after other steps, and for heads
  // whose weights the step did not compute (a windowed layer that the policy never evicts from).
  const KeptWeights& kept_weights(int head) const { return kept_weights_[static_cast<std::size_t>(head)]; }

 private:
  // Called on the threads of the model's step, which must not throw: done() rethrows.
  void on_weights(int head) noexcept override;
  void on_insert_kv(int head, Rows keys, Rows values) noexcept override;
  void on_queries(int head, int member, Rows queries) noexcept override;
  template <typename Report>
  void guarded(Report report) noexcept;
  std::size_t make_room();
  SequenceStep insert(std::span<const TokenId> tokens);
  void request_signals(SequenceStep& step);
  void keep_weights(int head, const Rows& rows);
  void report_held(int index);
  std::span<const TokenId> next_repeated();
  void end(std::size_t tokens, Phase phase);
  Phase phase() const {
    return stage_ == Stage::kDecode ? Phase::kDecode : stage_ == Stage::kRepeat ? Phase::kRepeat : Phase::kPrefill;
  }
  std::size_t weights_count(int head) const;  // number of slots and entries of merged tokens
  std::size_t max_weights(int head) const;    // the same, of later steps too as long as the head has these slots
  std::span<float> query_statistics(int head);
  void add_queries(int head, int member, Rows queries);
  void score_tables(int coming, Phase phase);
  void evict(int coming, Phase phase);
  bool drop(const Plan& plan, bool unseen);
  void restart_memory_log();

  SessionOptions options_;
  std::shared_ptr<const MethodPlan> plan_;
  Evictor evictor_;
  std::vector<std::size_t> rope_of_;          // [layers] index of the model's RoPE table
  std::vector<RopeFrequencies> frequencies_;  // [layers] for re-rotation, merging, query moments; else empty
  float scale_ = 0;                           // attention scale
  std::shared_ptr<Workers> workers_;
  std::shared_ptr<const Interrupt> interrupt_;
  std::shared_ptr<MemoryLog> memory_log_;
  std::unique_ptr<Cache> cache_;
  std::vector<std::vector<float>> weights_;   // of the running layer, [KV heads][rows][slots]; if the policy uses them
  std::vector<std::vector<float>> sums_;      // likewise, over all queries of the step, one row
  int weights_stride_ = 0;                    // between the rows
  std::vector<KeptWeights> kept_weights_;     // [heads] if options_.keep_weights
  std::vector<float*> weights_of_, sums_of_;  // [heads]
  EvictionTimes times_;
  std::vector<TokenId> window_;  // without a cache: the tokens to recompute

  Stage stage_ = Stage::kIdle;
  std::span<const TokenId> prompt_;
  std::vector<TokenId> tokens_;  // kDecode: a token and its drafts
  int drafts_ = 0;               // drafts of the last step, until accept()
  HeldSignals held_;
  bool all_logits_ = false;
  StepResult result_ = StepResult::kLogits;  // of the prompt
  bool continues_ = false;                   // the next prompt continues a text that was read in part
  std::size_t read_ = 0, repeated_ = 0;      // tokens of the prompt
  std::size_t running_ = 0;                  // prompt tokens of this step
  std::size_t step_tokens_ = 0;              // all tokens of this step, recomputed ones included
  std::vector<TokenId> part_;                // kRepeat: instruction and part of the prompt
  std::vector<float> logits_;                // kRepeat: logits of the prompt's last token
  std::atomic_flag report_failed_;           // on_weights(), on_insert_kv() or on_queries() threw, on any thread
  std::exception_ptr failure_;               // the first exception
};

}  // namespace palimpsest
