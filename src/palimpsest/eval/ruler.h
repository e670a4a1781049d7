// RULER's generated tasks (Hsieh et al., arXiv 2404.06654), in its words: needles (eval/data/ruler.json), variable
// tracking, common words. Without the worked example that RULER puts before the last two; words come from the haystack.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/eval/needle.h"

namespace palimpsest {

struct RulerPrompt {
  std::string context, question;
  std::vector<std::string> answers;  // all are asked for
  int tokens = 0;                    // of an answer at most
};

std::vector<std::string> ruler_tasks();
// Throws Error for an unknown task, and as make_needle does. `length`: tokens of prompt and answer.
RulerPrompt make_ruler(const std::string& task, long long length, const Haystack& haystack,
                       const Vocabulary& vocabulary, Draw& draw);
// The share of the answers that stand in the prediction, whatever their case (string_match_all).
double ruler_score(std::string_view prediction, const std::vector<std::string>& answers);

}  // namespace palimpsest
