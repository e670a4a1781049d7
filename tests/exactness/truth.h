// Test oracle: the tokens that one sequence's cache must hold and the outputs that its attention must give. Keys and
// values are stored unrotated, by position; a slot table is a list of positions; sums are in double precision. There
// are no slots, no pages and no ways to rotate. The distance of a key from a query is
//
//   original positions   the difference of their positions
//   cache positions      the number of visible tokens younger than the key, the query itself not counted
//
// ALiBi uses the same distance; a layer's attention window always uses the difference of positions.
//
// Layers with an attention window (TruthOptions::windows): tokens that no later query sees are dropped before the
// policy scores; a table whose budget holds the whole window has no policy. Shift and gather drop these tokens when the
// policy evicts, or when they fill a page; block drops full pages (truth_windows.cpp).
//
// Only the policy's score function is shared with the engine (tokens in order of age); protection, selection and
// schedule are implemented independently. Input of the score function: for score_on_insert, the rows of the model; for
// policies that compare keys or values, rows in the cache's precision; for attention windows, the weights of the
// queries that count (tests/support/naive_window.h).
//
// Mechanism `block`: tokens fill a page in order. After an eviction at the end of a chunk, the kept tokens are packed
// into pages again, oldest first. In decode, the evicted page is the full page with the lowest mean score among those
// without a protected token.
//
// For a policy that repeats the prompt, only the maximum weights of the repetition count; its tokens are removed.
// Budgets of split `pyramid` and `ada` (truth_budgets.cpp) and merging (truth_merge.cpp) are implemented from their
// papers. Mechanism match: the values and biases are the engine's, if they give the reference queries what they had, or
// less of an error than dropping alone (truth_match.cpp).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/rope.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/policy/policy.h"
#include "tests/support/naive_window.h"

namespace palimpsest::testing {

struct Verdict {
  // The largest error of an attention output, relative to the largest value that the query attended to. If the
  // magnitudes of a score's terms add up to S > 8, the error is divided by S / 8: an f32 sum of 100 has an error of
  // 100 * 2^-24. The rounding errors of n dimensions add up like a random walk, so it is also divided by sqrt(n / 8).
  // A rotary pair counts by the product of its lengths: even if query and key are orthogonal, their product is a
  // difference of two products of that size.
  double worst = 0;
  double worst_plain = 0;     // not divided by the scores' size
  std::string where;          // of the worst error
  long long kept_wrong = 0;   // slot tables with a wrong set of tokens, summed over steps
  std::string first_wrong;    // the first of them
  long long ties = 0;         // evicted tokens whose scores equal ours within rounding: the sets may differ
  Position first_tie = -1;    // the next token at that time; -1: none
  Position first_close = -1;  // the same for a victim and a kept token, or for a weight and its threshold (counts())
  std::vector<std::pair<Position, std::uint64_t>> kept;  // of each step: its first token, hash of all tables after it
  long long sets = 0;                                    // slot tables compared
  long long outputs = 0;                                 // rows of attention outputs compared
};

struct TruthOptions {
  Method method;
  CacheTypes type = CacheType::kF32;
  bool rotated = false;           // keys are rounded to their type after the rotation, not before
  bool copied = false;            // keys are rounded before and after the rotation
  std::vector<int> budgets = {};  // of each layer and head, from a file; empty: the method's
  int page_size = 16;
  long long prompt = 0;      // tokens that are read as a prompt
  double same_score = 1e-5;  // relative: the order of such close scores may differ in the engine
  PolicyModel model = {};    // for policies trained for one model
  bool windows = false;      // layers with an attention window hold that window only
};

class Truth {
 public:
  // Rows in the graph's layout: head h of token t begins at data + (t * heads + h) * dim.
  struct Layer {
    const float *q, *k, *v, *out;
  };

  Truth(const Hyperparameters& hyper, const TruthOptions& options);

  void begin(const Cache& cache, int count);  // evicts, inserts `count` tokens, compares the sets
  void layer(int index, const Layer& rows);   // in order
  void end();

  const Verdict& verdict() const { return verdict_; }
  // What each table keeps now: position, and the position of the token it was merged into, or kNoPosition.
  std::vector<std::vector<std::pair<Position, Position>>> kept() const;

 private:
  struct Token {
    Position position;
    float score = 0;
    double received = 0;                    // attention weight of this step
    double sum = 0;                         // of all queries so far
    float inserted = 0;                     // Policy::score_inserted
    int page = 0;                           // block
    double square = 0;                      // PageScore::kNorms: of its key\'s norm
    Position representative = kNoPosition;  // merged into this token; kNoPosition: into none
    double factor = 1;                      // merged tokens: norm of the key over the representative's
    double bias = 0;                        // mechanism match
    double norm = 0;                        // MergedKey::kMean: of the own key of a representative; 0: its row's
    std::vector<std::pair<Position, double>> history = {};  // weights, by query, if the policy has a window
  };
  struct Table {
    std::vector<Token> kept;     // oldest first
    std::vector<Token> dropped;  // since the last comparison
    std::vector<Token> zero;     // the zero class: no query attends to it, no policy scores it again
    bool returns = false;        // max_drop: the next step evicts, too
    float boundary = 0;          // the highest score of those dropped last
    bool close_budget = false;   // ada: the scores at the budget's end are equal within rounding
    // If the scores at the victims' end are: what leaves and what stays with the other order (refresh).
    std::vector<std::pair<std::vector<Position>, std::vector<Position>>> otherwise;
  };
  struct Angle {
    std::vector<double> cos, sin;
  };

  enum class Phase { kInPrompt, kPromptEnd, kLater };
  void evict(int coming, Phase phase);
  int budget(std::size_t table) const { return budgets_.empty() ? method_.budget : budgets_[table]; }
  int surplus(std::size_t table, int coming, Phase phase) const;
  int now_of(int surplus, Phase phase) const;
  void evict(std::size_t index, int count);
  void evict_page(Table& table);
  int page() const { return method_.page > 0 ? method_.page : options_.page_size; }
  void lay(Table& table, std::size_t from) const;  // assigns pages to the tokens from there on
  void lay_again(Table& table) const;
  bool may_leave(const Token& token, std::size_t table) const;
  void drop(Table& table, const std::vector<std::size_t>& order);
  std::vector<std::size_t> not_spared(std::vector<std::size_t> victims) const;
  void note_other_victims(Table& table, const std::vector<std::size_t>& order, std::size_t last);
  void settle_spared(const std::vector<Position>& theirs, Table& table);
  void settle_ties(const Cache& cache, int index, Table& table);
  void compare(const Cache& cache, int index, Table& table);
  bool tied(const Table& table, const Token& token) const;
  void wrong(const std::string& what);
  void take_back();
  // Of merged tokens: the representative's slot; the position that the key is rotated at is the representative's or the
  // token's own (MergePosition).
  static Position stored_at(const Token& token) {
    return token.representative == kNoPosition ? token.position : token.representative;
  }
  Position rotated_at(const Token& token) const {
    return method_.merge_position == MergePosition::kOwn ? token.position : stored_at(token);
  }
  // truth_scores.cpp
  void score(std::size_t index);  // of all tokens of a table
  std::vector<float> scored(std::size_t index, double factor);
  bool counts() const { return method_.policy == "scissorhands"; }  // weights above a threshold
  void follow(std::size_t index, std::span<const float> low, std::span<const float> high);
  void report_kv(int layer, const Layer& rows);
  void ask(int layer, const Layer& rows);
  ExpectedQueries expected(std::size_t index, std::vector<float>& memory);
  std::vector<float> keys_of(std::size_t index);
  std::vector<float> values_of(std::size_t index);
  std::vector<float> attention_of(std::size_t index) const;
  // truth_budgets.cpp
  std::vector<int> first_budgets() const;
  void budgets_at_prompt_end();
  void share_by_scores(int layer, int added);
  bool share_now(int layer, int coming, Phase phase);
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
  // truth_match.cpp
  void keep_references(int layer, const Layer& rows);
  void match(const Cache& cache, int index, Table& table, const std::vector<Token>& leaving);
  struct Outputs {
    std::vector<double> rows;  // [queries][value width]
    double square = 0;         // sum of squares
  };
  Outputs outputs(int index, const std::vector<Token>& tokens);
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
  std::optional<NaiveWindow> window_;
  bool shared_ = true;
  std::vector<int> budgets_;           // current budget of each layer and head; empty: the method's
  std::vector<std::int32_t> windows_;  // [table] INT32_MAX: all tokens are kept; empty: no windows
  long long repeated_ = 0;             // tokens of the prompt repeated so far
  bool repeating_ = false;             // this step is part of the repetition
  bool counts_ = true;                 // attention is recorded for the policy
  std::vector<Table> tables_;
  std::vector<std::vector<Angle>> angles_;                 // of each rotary table, by distance
  std::vector<std::vector<double>> keys_, values_;         // [head], rows by position
  std::vector<std::vector<std::vector<double>>> queries_;  // [head][member of its group], all of them, for QueryMoments
  std::vector<std::vector<std::vector<double>>> references_;  // likewise, by position, for mechanism match
  const Cache* cache_ = nullptr;                              // of this step
  int count_ = 0;
  Position next_ = 0;
  Verdict verdict_;
};

}  // namespace palimpsest::testing
