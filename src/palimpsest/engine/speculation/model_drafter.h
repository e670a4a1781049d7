// Drafts by a smaller model with the same vocabulary, in a session with a method of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/speculation/drafter.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

class ModelDrafter : public Drafter {
 public:
  static constexpr float kMinProbability = 0.75F;

  // Stops at a draft that the model gives less than `min_probability`. Throws Error if the session cannot forget the
  // drafts that were rejected: methods without a cache or that merge tokens, layers with an attention window or a
  // recurrent state.
  ModelDrafter(std::shared_ptr<Decoder> decoder, const SessionOptions& options,
               float min_probability = kMinProbability);
  ModelDrafter(std::unique_ptr<Session> session, float min_probability);  // throws likewise

  void append(std::span<const TokenId> tokens) override;
  // If the model fails (a text longer than its learned positions, a full memory), there are no more drafts.
  std::span<const TokenId> draft(int max) override;
  // Why there are no more drafts; empty: the model has not failed.
  const std::string& failure() const { return failure_; }
  const Session& session() const { return *session_; }

 protected:
  Session& session() { return *session_; }
  // Reads the text's next tokens; returns the logits after the last one. Requires: at least one.
  virtual std::span<const float> read(std::span<const TokenId> tokens);

 private:
  void draft_more(int max);
  void forget(std::size_t tokens);

  std::unique_ptr<Session> session_;
  float min_probability_;
  std::vector<TokenId> unread_;  // of the text
  std::vector<TokenId> ahead_;   // drafts that the session has read after the text
  std::vector<TokenId> drafts_;
  std::string failure_;
};

// Throws Error unless both have the same tokens.
void check_same_vocabulary(const Vocabulary& target, const Vocabulary& draft);

}  // namespace palimpsest
