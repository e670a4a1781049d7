// What one sequence's cache should hold and what its attention should give, from first principles: every token's key
// and value is kept un-rotated by its position, each slot table is a list of positions, and all sums are of doubles.
// There are no slots, no pages, no ways to rotate: a key's distance from a query is
//
//   original positions   the difference of their positions
//   cache positions      how many tokens that the query sees are younger than the key, not counting the query itself
//
// ALiBi's bias goes by the same distance; a layer's own window by the difference of positions, always.
//
// Layers with an attention window (TruthOptions::windows): tokens that no later query sees are dropped before any
// policy is asked; a table whose budget holds the whole window needs no policy. Mechanisms that move tokens drop them
// when a policy evicts, or a page of them at a time; mechanism `block` drops full pages (truth_windows.cpp).
//
// The policy is asked for scores (of tokens in order of age); protection, selection and schedule are written anew. A
// policy of births is shown the rows that the model made; one that compares keys or values, those that a cache would
// hold; one with a window of attention, sums over what each token received in each step of it.
//
// Mechanism `block`: a token shares a page with those that came before it until it is full. What an eviction after
// tokens of a prompt leaves is laid into pages again, oldest first; when tokens come one by one, the full page of the
// lowest mean score leaves whose tokens all may.
//
// A policy that has the prompt repeated is shown the greatest weights of those steps alone; their tokens are taken
// back. Budgets of split `pyramid` and `ada` are written anew from their papers (truth_budgets.cpp), and so is merging
// (truth_merge.cpp).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/attention/rope.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {

struct Verdict {
  // Attention's greatest error, relative to the largest value that the query saw and, if its scores' terms add up to
  // more than 8, to an eighth of that: a score of 100 has an error of 100 * 2^-24 wherever it is summed in f32. As many
  // roundings as dimensions add up like a random walk: for 64 of them the root of 8 times what it is for 8. A rotary
  // pair counts by its lengths: query and key are turned before they are multiplied, and what they leave when they
  // meet at a right angle is the difference of two products of that size.
  double worst = 0;
  double worst_plain = 0;     // not divided by the scores' size
  std::string where;          // of it
  long long kept_wrong = 0;   // slot tables, counted in every step, that held another set of tokens than they should
  std::string first_wrong;    // the first of them
  long long ties = 0;         // victims that scored the same as ours to rounding: the sets may differ by them
  Position first_tie = -1;    // the token that was about to come then; -1: none
  Position first_close = -1;  // the same, when a victim scored as one that stayed to rounding
  std::vector<std::pair<Position, std::uint64_t>> kept;  // after tokens were inserted: what is in all tables, hashed
  long long sets = 0;                                    // slot tables looked at, and
  long long outputs = 0;                                 // rows of attention's output
};

struct TruthOptions {
  Method method;
  CacheTypes type = CacheType::kF32;
  bool rotated = false;           // keys are rounded to their type after they were rotated, not before
  bool copied = false;            // ... before, and once more after
  std::vector<int> budgets = {};  // of each layer and head, from a file; empty: the method's
  int page_size = 16;
  long long prompt = 0;      // tokens that are read as a prompt
  double same_score = 1e-5;  // relative: scores so close may be in another order elsewhere
  PolicyModel model = {};    // for policies that were made for one
  bool windows = false;      // layers with an attention window hold that window only
};

class Truth {
 public:
  // Rows as a graph has them: token t's head h begins at data + (t * heads + h) * dim.
  struct Layer {
    const float *q, *k, *v, *out;
  };

  Truth(const Hyperparameters& hyper, const TruthOptions& options);

  void begin(const Cache& cache, int count);  // evicts, compares the sets, takes `count` tokens in
  void layer(int index, const Layer& rows);   // in order
  void end();

  const Verdict& verdict() const { return verdict_; }

 private:
  struct Token {
    Position position;
    float score = 0;
    double received = 0;                                    // attention weight in this step
    double sum = 0;                                         // of all queries so far
    int page = 0;                                           // block
    Position representative = kNoPosition;                  // merged into this token; kNoPosition: into none
    double factor = 1;                                      // of a merged token: its key's norm over its centre's
    std::vector<std::pair<Position, double>> history = {};  // the same of earlier steps, by their last query
  };
  struct Table {
    std::vector<Token> kept;     // oldest first
    std::vector<Token> dropped;  // since the sets were compared last
    float boundary = 0;          // the highest score among them
    bool close_budget = false;   // ada: a score of another head is the same to rounding where the budget ends
  };
  struct Angle {
    std::vector<double> cos, sin;
  };

  enum class Phase { kInPrompt, kPromptEnd, kLater };
  void evict(int coming, Phase phase);
  int budget(std::size_t table) const { return budgets_.empty() ? method_.budget : budgets_[table]; }
  int surplus(std::size_t table, int coming, Phase phase) const;
  void evict(std::size_t index, int count);
  void evict_page(Table& table);
  void lay(Table& table, std::size_t from) const;  // pages of the tokens from there on
  bool may_leave(const Token& token, std::size_t table) const;
  void drop(Table& table, const std::vector<std::size_t>& order);
  void score(std::size_t index);
  void report_kv(int layer, const Layer& rows);
  void ask(int layer, const Layer& rows);
  ExpectedQueries expected(std::size_t index, std::vector<float>& memory);
  std::vector<float> keys_of(std::size_t index);
  std::vector<float> values_of(std::size_t index);
  std::vector<float> attention_of(std::size_t index) const;
  void compare(const Cache& cache, int index, Table& table);
  bool tied(const Table& table, const Token& token) const;
  void wrong(const std::string& what);
  void take_back();
  // Of a merged token: its class's. Where it stands in the text is its centre's position, or its own.
  static Position stored_at(const Token& token) {
    return token.representative == kNoPosition ? token.position : token.representative;
  }
  Position rotated_at(const Token& token) const {
    return method_.merge_position == MergePosition::kOwn ? token.position : stored_at(token);
  }
  // truth_budgets.cpp
  std::vector<int> first_budgets() const;
  void budgets_at_prompt_end();
  void share_by_scores(int layer);
  std::vector<int> of_pyramid(long long tokens) const;
  // truth_windows.cpp
  std::vector<std::int32_t> first_windows() const;
  bool holds_window(std::size_t table) const;
  void drop_unseen(int coming, Phase phase);
  Position seen_from(std::size_t table) const;
  // truth_merge.cpp
  void merge(const Cache& cache, int index, Table& table, const std::vector<Token>& leaving);
  double likeness(int layer, int head, Position a, Position b);
  void join(int layer, int head, Table& table, Position target, const std::vector<std::vector<Token>>& classes);
  void keep_best(Table& table, const std::vector<Position>& theirs, std::size_t max, int index);
  bool same(double a, double b) const;  // scores
  void store(int layer, const Layer& rows);
  void attend(int layer, const Layer& rows, int kv_head, int query);
  const Angle& angle(int rope, Position distance);
  double* key(int layer, int head, Position position);
  double* value(int layer, int head, Position position);
  void rotate(double* key, int rope, Position distance, double sign);

  const Hyperparameters hyper_;
  const TruthOptions options_;
  const Method& method_;
  std::vector<RopeFrequencies> frequencies_;  // of each rotary table
  std::unique_ptr<Policy> policy_;
  Signals signals_;
  bool shared_ = true;
  std::vector<int> budgets_;           // of each layer and head, now; empty: the method's
  std::vector<std::int32_t> windows_;  // of each table, where tokens outside it are dropped; INT32_MAX: nowhere
  long long repeated_ = 0;             // tokens, while a prompt is repeated ...
  bool repeating_ = false;             // ... as in this step
  std::vector<Table> tables_;
  std::vector<std::vector<Angle>> angles_;                 // of each rotary table, by distance
  std::vector<std::vector<double>> keys_, values_;         // [head], rows by position
  std::vector<std::vector<std::vector<double>>> queries_;  // [head][of its group], all of them, if they are asked for
  int count_ = 0;
  Position next_ = 0;
  Verdict verdict_;
};

}  // namespace palimpsest::testing
