// A long context and questions about it; their common prefix is read once.
//
//   Seen::kBefore   context + question | answer      the question is read before tokens are evicted
//   Seen::kAfter    context | question | answer      the context is compressed to the budget before the question
//
//   kBefore  |chunk|chunk|chunk| rest + question | start    shares whole chunks
//   kAfter   |      context      | question + start         shares the compressed context; reads token by token
//
// The start of an answer is given to the model. In both cases it is read token by token after the compression, so that
// every token of the answer is predicted from the compressed cache. Without a start, the last token of the question is
// read so: the logits of a prompt's last token are computed before its end is compressed.
//
// Answers are bit-identical to those of a separate session per question (tests/eval/asker_test.cpp).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/text/sampler_options.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

class ChatTemplate;

enum class QuestionSeen { kBefore, kAfter };

// A context and its questions, as tokens. Each context + question is tokenized as one text; the context ends where the
// tokens of the questions first differ.
struct Prompt {
  std::vector<TokenId> context;
  std::vector<std::vector<TokenId>> questions;  // with the start of the answer; none is empty
  std::vector<std::size_t> starts = {};    // the last tokens of each question that are read after the prompt's end;
                                           // missing or 0: 1
  std::vector<std::string> expected = {};  // the right answers, for logs; or empty
};
// `starts`: of the answers, one for each question; or empty. `special`: parses control tokens in the text, as in a
// chat. Throws Error for an empty question.
Prompt tokenize_prompt(const Vocabulary& vocabulary, const std::string& context, std::span<const std::string> questions,
                       std::span<const std::string> starts = {}, bool special = false);

// The same in the chat template, as the user's message after a system prompt (empty: none); nullptr: the system prompt
// begins the context, and "Answer: " and the start follow each question. Throws Error if the template omits the user's
// text.
Prompt question_prompt(const Vocabulary& vocabulary, const ChatTemplate* chat, const std::string& context,
                       std::span<const std::string> questions, std::span<const std::string> starts,
                       const std::string& system = {});

struct AnswerOptions {
  int max_tokens = 32;
  bool stop_at_newline = false;  // ignores leading white space
  // Of each answer; nullopt: the likeliest tokens. With a seed, the same draws for every answer.
  std::optional<SamplerOptions> sampler = std::nullopt;
};

struct QuestionAnswer {
  std::string text;
  std::vector<TokenId> tokens;
  double first_nll = 0;          // of the first token, nats: the model's confidence
  long long prompt_tokens = 0;   // context and question
  long long evicted = 0;         // tokens evicted from this question's sequence until the end of the answer
  double prompt_ms = 0, ms = 0;  // reading the part that is not shared; decoding the tokens after the first
};

class Asker {
 public:
  Asker(std::shared_ptr<Decoder> decoder, std::shared_ptr<Vocabulary> vocabulary, const SessionOptions& options);

  // Returns one answer for each question of the prompt.
  std::vector<QuestionAnswer> ask(const Prompt& prompt, QuestionSeen seen, const AnswerOptions& options);
  const Session& session() const { return session_; }

 private:
  std::size_t read_context(const Prompt& prompt, QuestionSeen seen);  // returns the number of tokens read
  QuestionAnswer answer(std::span<const float> logits, const AnswerOptions& options);

  std::shared_ptr<Vocabulary> vocabulary_;
  Session session_;
};

}  // namespace palimpsest
