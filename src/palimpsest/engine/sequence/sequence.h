// The state of one sequence: its cache, its method, and the tokens to read. It owns its stage:
//
//   read(prompt)   kPrompt   in chunks; each is followed by an eviction down to the budget
//                  kRepeat   with Signals::repeat the model then reads the prompt again, for its weights
//   read(token)    kDecode   one token, just sampled, and drafts: tokens that may follow it
//
// After a step with drafts accept() says how many of them are accepted. The cache and the policy's statistics are then
// as if each had been read in a step of its own: the drafts' slots are given back, if they took any, and the accepted
// tokens take slots one by one, with the evictions in between and each one's weights.
//
// A step (engine/sequence/step_loop.h) is next(), the model, done(). Its rooms:
//
//   Evictions         what a step drops and inserts, as one change of the cache
//   SignalCollector   what the model reports to the policy
//   PromptPasses      the layers that a step of a prompt runs
//   RecomputeWindow   the tokens of a method without a cache
//   sequence_edit     edits in the middle of the text
//   sequence_stream   saving, loading, continuing from another's cache
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/workers.h"
#include "palimpsest/engine/sequence/draft_preview.h"
#include "palimpsest/engine/sequence/draft_rows.h"
#include "palimpsest/engine/sequence/evictions.h"
#include "palimpsest/engine/sequence/memory_log.h"
#include "palimpsest/engine/sequence/prompt_passes.h"
#include "palimpsest/engine/sequence/recompute_window.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/engine/sequence/signal_collector.h"
#include "palimpsest/evict/evictor.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest {

class Sequence {
 public:
  // `workers`: for moves of the mechanisms shift and gather, and for scoring; may be nullptr. `pool`: shared by several
  // sequences; nullptr: its own. Throws Error.
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<Workers> workers,
           std::shared_ptr<PagePool> pool = nullptr);
  // Requires: `plan` is of plan_target(decoder, options).
  Sequence(const Decoder& decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
           std::shared_ptr<Workers> workers, std::shared_ptr<PagePool> pool = nullptr);

  enum class Stage { kIdle, kPrompt, kRepeat, kDecode };
  Stage stage() const { return stage_; }

  // Checked in evictions; nullptr: none. next() and done() throw Interrupted; the sequence is unusable then.
  void set_interrupt(std::shared_ptr<const Interrupt> interrupt) { evictions_.set_interrupt(std::move(interrupt)); }
  // Records what the cache drops from now on; nullptr: nothing.
  void set_memory_log(std::shared_ptr<MemoryLog> log) { evictions_.set_memory_log(std::move(log)); }

  // Sets the tokens to read. Unread tokens of an earlier call are discarded; a prompt that was read in part continues
  // with the next one. (Layer by layer it cannot: layers hold different tokens then. Until clear() all but clear()
  // throws Error.) With `all_logits` done() returns the rows of every token, not only of the last one. `result`: what
  // these are, of the prompt.
  // Requires: at least one token; the span stays valid until they are read.
  void read(std::span<const TokenId> prompt, bool all_logits = false, StepResult result = StepResult::kLogits);
  // With `drafts`, tokens that may follow it: done() returns the logits of the token and of the first drafts, as many
  // as there is room for before the next eviction; then call accept(). Without it the next read() forgets all drafts.
  void read(TokenId token, std::span<const TokenId> drafts = {});
  // The first `drafts` of the step's drafts are accepted; the others are forgotten. After an exception the
  // sequence is unusable.
  // Requires: the last step read at least as many.
  void accept(int drafts);
  // Begins after the first `tokens` of the prompt.
  // Requires: stage() is kPrompt; the cache holds these tokens (continue_from); the prompt has more.
  void skip(std::size_t tokens);
  // Tokens of the prompt that passed all layers.
  std::size_t tokens_read() const { return stage_ == Stage::kPrompt && !passes_.last() ? 0 : read_; }
  // The same, but layer by layer the share of the work that is done, in tokens.
  std::size_t progress() const { return stage_ == Stage::kPrompt ? passes_.progress(read_, prompt_.size()) : read_; }
  // Tokens that the model must read before there are logits to sample from.
  std::size_t tokens_left() const;
  // Max tokens of the next step; does not depend on other sequences.
  std::size_t tokens_next() const;

  // Evicts, and takes slots for the step's tokens: a chunk of the prompt, or the sampled token. Throws Error or
  // std::bad_alloc; the sequence is then as before, and next() may be called again. (Unusable: after Interrupted, or
  // when merging fails.)
  // Requires: stage() is not kIdle.
  SequenceStep next();
  // Evicts down to the budget. `logits`: [rows][vocabulary], of all tokens of the step or of the last. Returns those to
  // sample from: empty before the prompt's end, unless `all_logits`. After an exception the sequence is unusable.
  // Requires: the model ran the step of next().
  std::span<const float> done(std::span<const float> logits);
  void rewind(Position position);  // see Session::rewind
  // Edits of the text (engine/sequence/text_edit.h): see Session. `hyper`: of the decoder's model.
  //
  // edit() drops the tokens of `range` and sets `tokens` to be read in their place, as a prompt: steps follow unless
  // there are none. Tokens behind keep their keys and values. Throws Error, unchanged. `pins`: whether the method's
  // pins are positions of the text as it is (then none may move), or as it will be.
  enum class Pins { kAsItIs, kAsItWillBe };
  void edit(PositionRange range, std::span<const TokenId> tokens, const Hyperparameters& hyper,
            Pins pins = Pins::kAsItIs);
  void drop(PositionRange range, const Hyperparameters& hyper);
  void shift(PositionRange range, Position by, const Hyperparameters& hyper);
  void check_edit(PositionRange range) const;  // throws Error: out of order, beyond the end
  // If the text changes from `first` on, to one of `tokens` tokens: how many need not be read again to be as a sequence
  // that reads the new text in one prompt. 0: the cache, or the policy's statistics, depend on tokens from `first` on.
  Position unaffected_until(Position first, long long tokens) const;
  void clear();

  bool repeats() const { return plan_->signals().repeat; }  // the model reads a prompt twice

  // Shares the pages of `kept`, as if this sequence had read its tokens, or the first `tokens` of them (Cache::share).
  // Requires: a method with a cache; at least PrefixKey::window tokens of the prompt follow.
  void continue_from(Cache& kept, Position tokens = kEndOfText);
  // Continues as the sequence that had this cache and state(). `in_prompt`: the next tokens belong to the prompt that
  // it read last. Requires: that sequence had the same method, with a cache.
  void continue_from(Cache& kept, std::span<const std::byte> state, bool in_prompt);
  // Tokens in `range` that both caches hold get the keys and values of `like`. Throws Error, std::bad_alloc.
  // Requires: both are caches of one model with the same types and size of pages.
  void copy_rows(const Cache& like, PositionRange range) { cache_->copy_rows(like, range); }
  bool in_prompt() const { return stage_ == Stage::kPrompt || continues_; }
  std::vector<std::byte> state() const;                  // what it needs besides its cache
  Cache& cache() { return *cache_; }                     // to share it
  void fetch_scores() const { cache_->fetch_scores(); }  // see Cache

  // The cache and the evictor's state (engine/sequence/snapshot.h).
  // Requires: no drafts are left to accept().
  void save(ByteWriter& out) const;
  // The same of a sequence that had this cache and state(). Another sequence may share() the cache meanwhile. Requires:
  // the cache has pages, and the method a cache.
  static void save(ByteWriter& out, const Cache& cache, std::span<const std::byte> state);
  // The first difference between the saved cache and the plan's (Cache::mismatch); empty: none.
  static std::string mismatch(const MethodPlan& plan, ByteReader in);
  void load(ByteReader& in);  // throws Error; the sequence is empty then
  // The same in parts, see Cache::load_tables.
  void load_tables(ByteReader& in);
  bool take_pages(int max) { return cache_->take_pages(max); }
  void load_pages(ByteReader& in);
  // After a load: the next tokens belong to the prompt that the saved sequence was reading.
  void continue_prompt() { continues_ = true; }

  const SessionOptions& options() const { return options_; }
  const Cache& cache() const { return *cache_; }
  const RecallTier* recall() const { return recall_.get(); }  // nullptr: the method has none
  void copy_recall(const Sequence& other);                    // Requires: the same method. Throws Error, std::bad_alloc
  const MethodPlan& plan() const { return *plan_; }
  const std::shared_ptr<const MethodPlan>& shared_plan() const { return plan_; }
  const AttentionRule& rule() const { return plan_->rule(); }
  int budget(int table) const { return evictor_.budget(table); }
  const Evictor& evictor() const { return evictor_; }
  const EvictionTimes& times() const { return evictions_.times(); }
  // If SessionOptions::keep_weights: SignalCollector::kept().
  const KeptWeights& kept_weights(int head) const { return collector_.kept(head); }

 private:
  Phase phase() const {
    return stage_ == Stage::kDecode ? Phase::kDecode : stage_ == Stage::kRepeat ? Phase::kRepeat : Phase::kPrefill;
  }
  void expect(Position text);
  int preview(std::size_t drafts);
  std::size_t step_size() const;  // of what follows; evictions are decided
  SequenceStep step_of(std::span<const TokenId> tokens);
  SequenceStep next_prompt_or_token();
  SequenceStep next_repeated();
  SequenceStep next_recomputed();
  void end(std::size_t tokens, Phase phase);
  void end_of_pass();
  TableRange tables() const { return stage_ == Stage::kPrompt ? passes_.tables() : TableRange{}; }  // of this step
  void check_whole() const;  // throws Error: a prompt was stopped between two layers
  void check_move(PositionRange range, Position by, const Hyperparameters& hyper, Pins pins = Pins::kAsItIs) const;

  SessionOptions options_;
  std::shared_ptr<const MethodPlan> plan_;
  Evictor evictor_;
  std::unique_ptr<Cache> cache_;
  std::unique_ptr<RecallTier> recall_;
  Evictions evictions_;
  DraftPreview preview_;
  SignalCollector collector_;
  PromptPasses passes_;
  RecomputeWindow window_;  // of a method without a cache
  DraftRows draft_rows_;

  Stage stage_ = Stage::kIdle;
  std::span<const TokenId> prompt_;
  std::vector<TokenId> tokens_;  // kDecode: a token and its drafts
  int expected_slots_ = 0;       // SequenceStep's, of the prompt
  int drafts_ = 0;               // drafts of the last step, until accept()
  bool previewed_ = false;       // they took no slots
  bool all_logits_ = false;
  StepResult result_ = StepResult::kLogits;  // of the prompt
  bool continues_ = false;                   // the next prompt continues a text that was read in part
  std::size_t read_ = 0, repeated_ = 0;      // tokens of the prompt, in this pass
  Position at_ = kNoPosition;                // of an edit: where the prompt's next token is inserted
  std::size_t running_ = 0;                  // tokens of this step, of the prompt or decoded
  std::size_t step_tokens_ = 0;              // all tokens of this step, recomputed ones included
  std::vector<TokenId> part_;                // kRepeat: instruction and part of the prompt
  std::vector<float> logits_;                // kRepeat: logits of the prompt's last token
};

}  // namespace palimpsest
