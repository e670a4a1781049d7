// One sequence and a decoder.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/engine/sequence/memory_map.h"
#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/engine/sequence/text_edit.h"

namespace palimpsest {

class Session {
 public:
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options);  // throws Error
  // Requires: `plan` is of plan_target(*decoder, options).
  // `pool`: shared with another session (Sequence::continue_from); nullptr: its own.
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan,
          std::shared_ptr<PagePool> pool = nullptr);

  // Called after each chunk with the number of tokens read (layer by layer: the share of the work, in tokens);
  // returning false stops. A prompt that is read layer by layer cannot be continued then: clear() the session.
  using Progress = std::function<bool(long long done, long long total)>;

  // Reads tokens, in chunks; evicts down to the budget after each. Returns the logits of the last token read. For
  // sinks + window the result does not depend on the chunk.
  // Requires: at least one token.
  std::span<const float> prefill(std::span<const TokenId> tokens, const Progress& progress = {});
  // Reads one token, returns the logits of the next. Attends to at most budget + interval - 1 tokens, this one
  // included.
  std::span<const float> decode(TokenId token);
  // Reads one token and drafts that may follow it (SessionOptions::draft_max). Returns the logits of the token and of
  // the first drafts, as many as there was room for and as fit the cache's type; then call accept() with the number of
  // drafts that are accepted: the session is then as if decode() had read these tokens one by one. Without accept(),
  // the next call forgets all drafts.
  // Requires: accept(): the last decode() returned logits of at least as many drafts.
  std::span<const float> decode(TokenId token, std::span<const TokenId> drafts);
  void accept(int drafts);
  // Teacher forcing: calls visit(i, logits) for each token, with the logits of its successor, chunk by chunk.
  // Requires: at least one token.
  using Visit = std::function<void(long long index, std::span<const float> logits)>;
  void read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress = {});
  // Takes and evicts slots as if `tokens` tokens were read, without running the model: keys and values are not written.
  // For benchmarks, which fill the pages themselves.
  void fill_slots(long long tokens);

  // Forgets the tokens from `position` on. Tokens that were evicted before stay evicted. Throws Error if it is beyond
  // the text, if layers with an attention window have dropped tokens that the next one sees, or if layers have a
  // recurrent state, which only clear() and position 0 forget.
  void rewind(Position position);
  void clear();

  // Edits of the text (engine/sequence/text_edit.h, docs/edits.md). Each throws Error, unchanged, for a range that is
  // out of order, beyond the end, or of which no head holds a token.
  //
  // Replaces the tokens at positions first .. last - 1 by `tokens`; none: removes them. Returns the logits of the last
  // token read: those of the text's next token, but for kReuse in the middle of a text. Nothing was read: empty.
  // `text`: the tokens of the text before the edit, for kExact; empty: those that were recorded or set.
  std::span<const float> edit(Position first, Position last, std::span<const TokenId> tokens,
                              EditMode mode = EditMode::kReuse, std::span<const TokenId> text = {});
  // Drops the tokens at these positions, which stay empty unless they reach the end of the text.
  void drop(Position first, Position last);
  // Adds `by` to the positions of these tokens; the target positions must be empty. kEndOfText: and to that of the next
  // token.
  void shift(Position first, Position last, Position by);
  // A session that continues as this one would. Both share pages, which are copied on write.
  // Requires: both are used on one thread.
  std::unique_ptr<Session> fork();

  // Records the text and what the cache drops from now on, at most kMaxMemory tokens and changes, for memory_map().
  void record_memory();
  static constexpr std::size_t kMaxMemory = std::size_t{1} << 20;
  // Which heads keep which token (engine/sequence/memory_map.h). Texts and times of eviction are those that were
  // recorded.
  MemoryMap memory_map(const MemoryQuery& query = {}) const;
  // The tokens that were read before, for memory_map(): of a restored snapshot.
  void set_text(std::span<const TokenId> tokens);
  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }
  const Cache& cache() const { return sequence_.cache(); }
  const Decoder& decoder() const { return loop_.decoder(); }
  const std::shared_ptr<Decoder>& shared_decoder() const { return loop_.shared_decoder(); }
  const Method& method() const { return sequence_.options().method; }
  const SessionOptions& options() const { return sequence_.options(); }
  const EvictionTimes& times() const { return sequence_.times(); }
  Position position() const { return cache().next(); }

 private:
  // Steps until the prompt is read; calls done(logits) after each step that returns logits.
  template <typename Done>
  void read_prompt(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done);
  std::span<const float> step();
  void remember(std::span<const TokenId> tokens);
  Session(const Session& like, const std::shared_ptr<PagePool>& pool);  // empty

  StepLoop loop_;
  Sequence sequence_;
  StepShare share_;
  std::shared_ptr<MemoryLog> memory_log_;  // nullptr: nothing is recorded
  std::vector<TokenId> text_;              // if recorded: [position]; -1: unknown
  std::vector<TokenId> drafts_;            // if recorded: of the last step, until accept()
};

}  // namespace palimpsest
