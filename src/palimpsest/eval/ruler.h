// RULER's generated tasks (Hsieh et al., arXiv 2404.06654), with its prompts: needles (eval/data/ruler.json), variable
// tracking, common words. Differences: no worked example before the last two; words are drawn from the haystack.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/eval/needle.h"

namespace palimpsest {

struct RulerPrompt {
  std::string context, question;
  std::vector<std::string> answers;  // all are expected
  int tokens = 0;                    // max tokens of an answer
};

std::vector<std::string> ruler_tasks();
// `length`: tokens of prompt and answer. Throws Error for an unknown task, and as make_needle does.
RulerPrompt make_ruler(const std::string& task, long long length, const Haystack& haystack,
                       const Vocabulary& vocabulary, Draw& draw);
// The fraction of the answers that occur in the prediction, ignoring case (string_match_all).
double ruler_score(std::string_view prediction, const std::vector<std::string>& answers);

}  // namespace palimpsest
