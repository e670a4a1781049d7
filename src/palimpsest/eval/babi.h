// Questions of the bAbI tasks (Weston et al., arXiv 1502.05698), and their facts among other text as in BABILong
// (arXiv 2406.10149).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct BabiQuestion {
  std::vector<std::string> facts;    // of its story, up to the question
  std::string question;              // "Where is John?"
  std::vector<std::string> answers;  // words that all belong to the answer: "hallway", or several of a list
};

// A file of a task: lines "1 John went home." and "2 Where is John? <tab>home<tab>1", also with | for a tab; number 1
// begins a story. Throws Error that names the line.
std::vector<BabiQuestion> parse_babi(std::string_view text, const std::string& file);

// The beginning of the answer, for questions of where something is: "John is in the". Else empty.
std::string babi_start(std::string_view question);

}  // namespace palimpsest
