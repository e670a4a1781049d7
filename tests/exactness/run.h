// Runs one combination through the real engine, teacher-forced; a Watch records its attention.
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
  float lead;  // over the second best logit, relative to the largest magnitude
};

struct Outcome {         // of one sequence
  std::vector<Top> top;  // after each token
  Verdict verdict;
};

// A different budget for each layer and head, between kBudget - 19 and kBudget; also written to a file.
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

// Scorers with random weights for policies with Signals::model, in temporary files.
class ScorerFile {
 public:
  ~ScorerFile();
  const std::string& made_for(const Model& model, const std::string& policy);  // the same model each time

 private:
  std::map<std::string, std::string> paths_;  // by policy
};

// One model, loaded once for each path in use, and the texts that all runs read.
class Laboratory {
 public:
  Laboratory(const std::string& gguf, int tokens);

  // Each sequence's outcome.
  std::vector<Outcome> run(const Combination& how) { return run(how, how.method()); }
  // ... compared with the truth of another method.
  std::vector<Outcome> run(const Combination& how, const std::string& supposed);
  // ... of an engine whose layers with an attention window hold all tokens.
  Outcome run_without_windows(const Combination& how);
  const Outcome& baseline(const Combination& how, int sequence);  // runs once for each result

  const std::string& split() const { return split_.path(); }  // a file of budgets by layer and head
  PositionKind positions() { return model(Path::kFast)->hyper().positions(); }
  // ggml reads GELU from a table of f16: a difference of 1e-7 becomes a step.
  bool table_steps() { return model(Path::kFast)->family().activation == Activation::kGelu; }
  int tokens() const { return static_cast<int>(texts_.front().size()); }

 private:
  std::shared_ptr<const Model> model(Path path);
  // Layers with an attention window hold that window only. True if the cache is in host pages.
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

// Steps whose top tokens differ although one of them leads by more than rounding can change. The comparison ends where
// the two runs keep different tokens.
struct TopDifference {
  long long compared = 0, wrong = 0, close = 0;  // close: different, but within rounding
  int first = -1;
  long long parted = 0;  // 1: the runs keep different tokens from some step on
};
TopDifference compare_tops(const Outcome& ours, const Outcome& base, const Combination& how, bool table_steps = false);
// Whether the runs may keep different tokens: scores are rounded differently. In f32, only equal scores changed order.
bool may_part(const Outcome& ours, const Outcome& base, const Combination& how);

// Bounds of rounding errors: of an attention output, relative to the largest value ...
double attention_bound(const Combination& how);
double same_score(const Combination& how);  // ... and of scores whose order may differ

}  // namespace palimpsest::testing
