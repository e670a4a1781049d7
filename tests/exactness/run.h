// Runs one combination through the real engine, teacher-forced, with a watch around its attention.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/model/model.h"
#include "tests/exactness/combination.h"
#include "tests/exactness/truth.h"

namespace palimpsest::testing {

struct Top {
  TokenId token;
  float lead;  // over the second best logit, relative to the greatest
};

struct Outcome {         // of one sequence
  std::vector<Top> top;  // after each token
  Verdict verdict;
};

// Of every layer and head another budget, between a little more than half of kBudget and all of it; in a file, too.
class UnevenBudgets {
 public:
  ~UnevenBudgets();
  void make(const Hyperparameters& hyper);
  const std::string& path() const { return path_; }
  const std::vector<int>& budgets() const { return budgets_; }

 private:
  std::string path_;
  std::vector<int> budgets_;
};

// A scorer for policy `learned` in a temporary file, its weights drawn at random.
class ScorerFile {
 public:
  ~ScorerFile();
  const std::string& made_for(const Model& model);  // the same model each time

 private:
  std::string path_;
};

// One model on every path that was asked for, and the texts that all runs read.
class Laboratory {
 public:
  Laboratory(const std::string& gguf, int tokens);

  // Each sequence's outcome.
  std::vector<Outcome> run(const Combination& how) { return run(how, how.method()); }
  // ... held against another method's truth.
  std::vector<Outcome> run(const Combination& how, const std::string& supposed);
  // ... of an engine whose layers with an attention window hold all tokens, as others do.
  Outcome run_without_windows(const Combination& how);
  const Outcome& baseline(const Combination& how, int sequence);  // of its result; run once

  const std::string& split() const { return split_.path(); }  // a file of budgets by layer and head
  PositionKind positions() { return model(Path::kFast)->hyper().positions(); }
  int tokens() const { return static_cast<int>(texts_.front().size()); }

 private:
  std::shared_ptr<const Model> model(Path path);
  // Layers with an attention window hold that window only: where the cache's bytes are in host pages.
  bool drops_unseen(Path path);
  struct Windows {
    bool held, supposed;  // by the engine; by the truth
  };
  std::vector<Outcome> run(const Combination& how, const std::string& supposed, int first_text, Windows windows);

  std::string gguf_;
  UnevenBudgets split_;
  ScorerFile scorer_;
  std::map<Path, std::shared_ptr<const Model>> models_;
  std::map<std::string, Outcome> baselines_;
  std::vector<std::vector<TokenId>> texts_;
};

// Steps whose top tokens differ although one of them leads by more than what is rounded may change. Two runs part, and
// are not compared any further, where a policy that sees attention weighs two tokens the same to rounding.
struct TopDifference {
  long long compared = 0, wrong = 0, close = 0;  // close: they differ, and lead by less than that
  int first = -1;
  long long parted = 0;  // 1 if they did
};
TopDifference compare_tops(const Outcome& ours, const Outcome& base, const Combination& how);
// They may: scores were rounded to other numbers. In f32 no other order was ever seen but of equal scores.
bool may_part(const Outcome& ours, const Outcome& base, const Combination& how);

// What rounding may do to an output of attention, relative to the largest value.
double attention_bound(const Combination& how);
double same_score(const Combination& how);  // ... and to the order of scores

}  // namespace palimpsest::testing
