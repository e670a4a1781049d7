// Tasks whose answers a program checks: instructions and a secret in a system prompt, a copy of code with one change, a
// tool call, a long answer (texts: eval/data/checked.json), and bAbI's questions (eval/babi.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/eval/asker.h"
#include "palimpsest/eval/babi.h"
#include "palimpsest/eval/haystack.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct CheckedTask {
  std::string name, about;
  bool chat = false;  // its context is the messages of a chat: needs CheckedSpec::between
  bool babi = false;  // needs CheckedSpec::babi
};
std::vector<CheckedTask> checked_tasks();
// Throws Error that lists the names.
CheckedTask checked_task(std::string_view name);

struct CheckedSpec {
  long long length = 1024;  // tokens of system prompt, context, question and answer
  int questions = 3;        // about each context; fewer if the task has fewer
  // What stands between two messages of the user whom the assistant answered with `reply`.
  std::function<std::string(const std::string& reply)> between = {};
  std::span<const BabiQuestion> babi = {};
};

// Marks of an answer, which follows its start: from 0 to 1.
using Check = std::function<double(std::string_view answer)>;

struct CheckedPrompt {
  std::string system, context;  // system: empty for tasks that are no chats
  std::vector<std::string> questions, starts;
  std::vector<Check> checks;
  std::vector<Check> forms;  // a tool call: is JSON; code: right but for its numbers; other tasks: none
  AnswerOptions options;
  bool judged = false;  // a long answer: its loss under the full cache is of interest
};

// Throws Error if the task does not fit into the length, or the haystack is too short.
CheckedPrompt make_checked(const CheckedTask& task, const CheckedSpec& spec, const Haystack& haystack,
                           const Vocabulary& vocabulary, Draw& draw);

// The share of distinct triples of successive words, upper and lower case alike; 0 for fewer than three words.
double distinct_trigrams(std::string_view text);

}  // namespace palimpsest
