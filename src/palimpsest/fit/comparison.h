// The table at the end of a fit: recall and perplexity of methods with and without the fitted files, at parts of the
// text's length. All keep 4 sinks and the newest quarter of the budget.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/eval/asker.h"
#include "palimpsest/fit/fit_state.h"
#include "palimpsest/fit/fitted_files.h"

namespace palimpsest {

struct ComparisonRow {
  std::string name;                     // as a user would write it
  std::string method;                   // without budget and files
  std::string scorer = {}, split = {};  // files

  bool fitted() const { return !scorer.empty() || !split.empty(); }
};

// The methods: those of `auto` and of split=profile; `all`: also those of the other files.
inline constexpr std::size_t kAutoBefore = 0, kAutoAfter = 1;  // rows of method auto without and with its file
std::vector<ComparisonRow> comparison_rows(const FittedFiles& files, bool rotary, bool all);

class FitComparison {
 public:
  static constexpr int kQuestions = 4;         // of a context: eval's needles of kind "word"
  static constexpr int kParts[] = {4, 8, 16};  // budgets: of the text's tokens

  // `text`: of which facts are hidden in; `held`: for perplexity. `length`: tokens of a context of facts.
  FitComparison(std::shared_ptr<Decoder> decoder, std::shared_ptr<Vocabulary> vocabulary, const std::string& text,
                std::vector<TokenId> held, int contexts, int length);

  // `part`: 0: the full cache, whatever the row. nullopt: `go_on` returned false; it is called between contexts.
  std::optional<FitResult> measure(const ComparisonRow& row, int part, const std::function<bool()>& go_on) const;
  int questions() const { return static_cast<int>(prompts_.size()) * kQuestions; }
  int length() const { return length_; }
  int held() const { return static_cast<int>(held_.size()); }

 private:
  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<Vocabulary> vocabulary_;
  struct Asked {
    Prompt prompt;
    std::vector<std::string> answers;  // words
    AnswerOptions options;
  };
  std::vector<Asked> prompts_;
  std::vector<TokenId> held_;
  int length_;
};

}  // namespace palimpsest
