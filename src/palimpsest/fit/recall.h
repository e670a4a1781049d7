// Recall: facts of one word, hidden in a text and asked for after the text was compressed. The answer begins as the
// fact does ("Martha works as a"), so that a model without a chat template can answer, too.
//
//   |  text ... Martha works as a baker. ... text ...  |  Which work does Martha do?  Martha works as a | baker
//      compressed to the budget                          read after that
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/eval/asker.h"
#include "palimpsest/eval/haystack.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

inline constexpr int kRecallFacts = 4;  // of a context, at 1/8, 3/8, 5/8 and 7/8 of it

struct RecallPrompt {
  Prompt prompt;                     // questions in the order of the answers
  std::vector<std::string> answers;  // words
};

// `count` contexts of about `tokens` tokens, from sentences of the haystack; in the model's chat template, if it has
// one. Throws Error: a length too small for the facts.
std::vector<RecallPrompt> recall_prompts(const std::shared_ptr<const Vocabulary>& vocabulary, const Haystack& haystack,
                                         int count, int tokens);
// The number of right answers; `answers` of the prompt's questions.
int count_right(const RecallPrompt& prompt, const std::vector<QuestionAnswer>& answers);
inline constexpr AnswerOptions kRecallAnswer = {.max_tokens = 5};

}  // namespace palimpsest
