// A needle in a haystack: what is planted, where, and what is asked. Kinds are data (eval/data/needles.json, or a
// user's own file), not code:
//
//   "passkey": {
//     "about": "...",                      for --help and results
//     "intro": "...",                      begins the context
//     "unit": "{text} ",                   a sentence of the haystack; a paragraph, if it ends with a newline
//     "haystack": "...",                   these sentences again and again instead of a text
//     "spread": 7,                         other needles anywhere ...
//     "same": 2, "other": 3,               ... beside it, of the same and of other variants ...
//     "fill": true,                        ... or instead of a haystack
//     "tokens": 16,                        of an answer at most
//     "variants": [{"needle": "{key} is {value}. ", "question": "What is {key}?",
//                   "words": {"key": ["a", "b"], "value": "10-99"}}]
//   }
//
// Words are drawn from a list, a range "10-99", "uuid", or "word": one of the haystack. No two needles of a context
// agree in all words but the value.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/eval/haystack.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct NeedleVariant {
  struct Words {
    std::string name;
    std::vector<std::string> list;  // or
    long long low = 0, high = -1;   // a range, or
    std::string special;            // "uuid", "word"
  };
  std::string needle, question;
  std::vector<Words> words;  // "value" is one of them
};

struct NeedleKind {
  std::string name, about, intro, unit = "{text} ", haystack;
  int spread = 0, same = 0, other = 0, tokens = 24;
  bool fill = false;
  std::vector<NeedleVariant> variants;
};

// Throws Error that names the kind and the field. `file` is what errors call it.
std::vector<NeedleKind> parse_needle_kinds(std::string_view json, const std::string& file);

struct NeedleSpec {
  long long length = 1024;  // tokens: BOS, context, question and answer together
  double depth = 0.5;       // of the haystack's tokens, 0: before, 1: after
  int questions = 1;        // asked about one context, of those beside the needle; fewer if there are fewer
};

struct NeedlePrompt {
  std::string context;
  std::vector<std::string> questions, answers;
  long long tokens = 0;  // of context and the longest question
};

// Throws Error if the haystack is too short for the length, or the length for the needle.
NeedlePrompt make_needle(const NeedleKind& kind, const NeedleSpec& spec, const Haystack& haystack,
                         const Vocabulary& vocabulary, Draw& draw);

// The greatest n in [0, most] whose text has `limit` tokens at most (BOS included); -1: none.
template <typename Make>
long long max_that_fit(const Vocabulary& vocabulary, long long max, long long limit, Make make) {
  const auto fits = [&](long long n) {
    return static_cast<long long>(vocabulary.tokenize(make(n), /*add_bos=*/true, /*special=*/false).size()) <= limit;
  };
  if (!fits(0)) return -1;
  long long good = 0, bad = 1;  // doubles until it is too much
  while (bad <= max && fits(bad)) good = bad, bad *= 2;
  bad = std::min(bad, max + 1);
  while (bad - good > 1) (fits((good + bad) / 2) ? good : bad) = (good + bad) / 2;
  return good;
}

// Whether `value` stands in the answer as a word of its own: not in the middle of a longer word or number.
bool says(std::string_view answer, std::string_view value);

}  // namespace palimpsest
