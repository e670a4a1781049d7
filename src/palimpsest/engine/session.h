// One sequence and a decoder.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "palimpsest/engine/step_loop.h"

namespace palimpsest {

class Session {
 public:
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options);  // throws Error
  // `plan`: of plan_target(*decoder, options).
  Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options, std::shared_ptr<const MethodPlan> plan);

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
  void fill_slots(long long tokens);

  void clear();
  Sequence& sequence() { return sequence_; }
  const Sequence& sequence() const { return sequence_; }
  const Cache& cache() const { return sequence_.cache(); }
  const Decoder& decoder() const { return loop_.decoder(); }
  const Method& method() const { return sequence_.options().method; }
  const SessionOptions& options() const { return sequence_.options(); }
  const EvictionTimes& times() const { return sequence_.times(); }
  Position position() const { return cache().next(); }

 private:
  // Steps until a prompt is read; `done` hears of the logits of each step that has some to go on with.
  template <typename Done>
  void read_prompt(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done);
  std::span<const float> step();

  StepLoop loop_;
  Sequence sequence_;
  StepShare share_;
};

}  // namespace palimpsest
