// Needle-in-a-haystack prompts. Kinds of needles are data (eval/data/needles.json or a user's file):
//
//   "passkey": {
//     "about": "...",                      description for --help and results
//     "intro": "...",                      beginning of the context
//     "unit": "{text} ",                   format of a haystack sentence; of a paragraph if it ends with a newline
//     "reply": "...",                      each unit is a user's message of a chat, to which the assistant says this
//     "haystack": "...",                   sentences to repeat instead of the haystack text
//     "spread": 7,                         number of other needles at random positions
//     "same": 2, "other": 3,               number of needles next to it, of the same variant and of other variants
//     "ask-all": true,                     questions are also about the other needles; those of "spread" are of the
//                                          other variants in turn, at equal distances from the first
//     "fill": true,                        other needles replace the haystack
//     "tokens": 16,                        max tokens of an answer
//     "variants": [{"needle": "{key} is {value}. ", "question": "What is {key}?",
//                   "answer": "{key} is",  beginning of the answer, given to the model
//                   "corrected": "{key} is now {value}. ",  half way to the end, with a new value: the answer
//                   "words": {"key": ["a", "b"], "value": "10-99"}}]
//   }
//
// Words are drawn from a list, a range "10-99", "uuid", or "word" (a word of the haystack). Any two needles of a
// context differ in at least one word other than the value.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/eval/haystack.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct NeedleVariant {
  struct Words {
    std::string name;
    std::vector<std::string> list;  // alternatives: a list,
    long long low = 0, high = -1;   // a range,
    std::string special;            // or "uuid" or "word"
  };
  std::string needle, question, answer, corrected;
  std::vector<Words> words;  // "value" is one of them
};

struct NeedleKind {
  std::string name, about, intro, unit = "{text} ", reply, haystack;
  int spread = 0, same = 0, other = 0, tokens = 24;
  bool fill = false, ask_all = false;
  std::vector<NeedleVariant> variants;
};

// Throws Error that names the kind and the field. `file`: name in errors.
std::vector<NeedleKind> parse_needle_kinds(std::string_view json, const std::string& file);

// The included kinds.
std::vector<NeedleKind> needle_kinds();
// The last one of this name: a user's kind replaces an included one. Throws Error that lists the names.
const NeedleKind& needle_kind(std::span<const NeedleKind> kinds, std::string_view name);

struct NeedleSpec {
  long long length = 1024;  // tokens of BOS, context, question and answer together
  double depth = 0.5;       // fraction of the haystack's tokens before the needle
  int questions = 1;        // questions per context, about the needle and those next to it; fewer if there are fewer
};

struct NeedlePrompt {
  std::string context;
  std::vector<std::string> questions, answers;
  std::vector<std::string> starts;  // the beginning of each answer, given to the model; may be empty
  long long tokens = 0;             // of context, the longest question and the beginning of its answer
};

// Throws Error if the haystack is too short for the length, or the length too small for the needle.
NeedlePrompt make_needle(const NeedleKind& kind, const NeedleSpec& spec, const Haystack& haystack,
                         const Vocabulary& vocabulary, Draw& draw);

// The max n in [0, max] for which make(n) has at most `limit` tokens (BOS included); -1: none.
template <typename Make>
long long max_that_fit(const Vocabulary& vocabulary, long long max, long long limit, Make make) {
  const auto fits = [&](long long n) {
    return static_cast<long long>(vocabulary.tokenize(make(n), /*add_bos=*/true, /*special=*/false).size()) <= limit;
  };
  if (!fits(0)) return -1;
  long long good = 0, bad = 1;  // doubled until it does not fit
  while (bad <= max && fits(bad)) good = bad, bad *= 2;
  bad = std::min(bad, max + 1);
  while (bad - good > 1) (fits((good + bad) / 2) ? good : bad) = (good + bad) / 2;
  return good;
}

// Whether `answer` contains `value` as a separate word, not inside a longer word or number.
bool contains_word(std::string_view answer, std::string_view value);

}  // namespace palimpsest
