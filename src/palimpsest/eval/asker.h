// A long context and questions about it, answered greedily; what the questions share is read once.
//
//   Seen::kBefore   context + question | answer      the question is there when tokens are chosen to leave
//   Seen::kAfter    context | question | answer      the cache was brought to its budget before the question came
//
//   kBefore  |chunk|chunk|chunk| rest + question     whole chunks are shared
//   kAfter   |      context      | question          the compressed context is; questions are read token by token
//
// An answer is that of a session of its own, to the last bit (tests/eval/asker_test.cpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/engine/session.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

enum class Seen { kBefore, kAfter };

// A context and what is asked about it, as tokens. Texts are tokenised whole: where the tokens of two questions part
// is where the context ends.
struct Prompt {
  std::vector<TokenId> context;
  std::vector<std::vector<TokenId>> questions;  // none is empty
};
// `special`: control tokens in the text are what they say, as in a chat. Throws Error for an empty question.
Prompt tokenize_prompt(const Vocabulary& vocabulary, const std::string& context, std::span<const std::string> questions,
                       bool special = false);

struct AnswerOptions {
  int max_tokens = 32;
  bool stop_at_newline = false;  // not before the first character that is no space
};

struct Asked {
  std::string text;
  std::vector<TokenId> tokens;
  double first_nll = 0;          // of the first token: how sure the model was
  long long prompt_tokens = 0;   // context and question
  long long evicted = 0;         // until the answer's end, of what this question's sequence has seen
  double prompt_ms = 0, ms = 0;  // reading what was not shared; the answer's tokens after the first
};

class Asker {
 public:
  Asker(std::shared_ptr<Decoder> decoder, std::shared_ptr<Vocabulary> vocabulary, const SessionOptions& options);

  // One answer for each question of the prompt.
  std::vector<Asked> ask(const Prompt& prompt, Seen seen, const AnswerOptions& options);
  const Session& session() const { return session_; }

 private:
  std::size_t read_context(const Prompt& prompt, Seen seen);  // tokens of it
  Asked answer(std::span<const float> logits, const AnswerOptions& options);

  std::shared_ptr<Vocabulary> vocabulary_;
  Session session_;
};

}  // namespace palimpsest
