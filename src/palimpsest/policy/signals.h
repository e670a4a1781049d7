// The inputs of a policy: its signals. A signal is computed only if the policy declares it, and only in phases where a
// later eviction can use it (evict/method_plan.h). Each signal owns its memory: columns of the slot tables, which move
// with their tokens, or statistics per head.
//
//   signal            computed from              memory                         input of score()
//   AttentionSum      each step's weights        none: the score accumulates    HeadView::attention, every step
//   ... and a window  each step's weights        1 column                       HeadView::attention_sum, at eviction
//   AttentionMax      each step's weights        none                           HeadView::attention, every step
//   AttentionWindow   weights of n queries       up to 8 columns                HeadView::attention, at eviction
//   QueryMoments      queries                    1 + d + d x d floats per head  HeadView::queries, at eviction
//   Keys, Values      the cache, or new tokens   none                           HeadView::keys, values
//   InsertScore       new tokens' keys, values   1 column                       HeadView::insert_score, at eviction
//
// One signal is not a policy's: ReferenceQueries, of mechanism match (engine/mechanism/match.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "palimpsest/core/types.h"

namespace palimpsest {

// The weights of all queries, mean over the query group. Alone: summed over the step's queries, input of every step's
// score(). With a window: summed over all queries so far, in its own column.
struct AttentionSum {
  bool operator==(const AttentionSum&) const = default;
};

// Max weight over the step's queries and the query group. CPU path only.
struct AttentionMax {
  bool operator==(const AttentionMax&) const = default;
};

// The weights of the last n = `queries` queries, summed. After a prompt: exactly its last n, whatever its chunks. In
// decode they are forgotten in up to 8 parts, so that the sum is over the last n - n / 8 to n queries.
struct AttentionWindow {
  static constexpr int kMaxParts = 8;
  int queries = 0;
  // Two parts of n queries, EMS's past and current bucket: the past one is the prompt's last n at first, the current
  // one takes its place when it has n. The last n to 2n - 1 queries count.
  bool past = false;
  bool whole_layer = false;  // mean over all heads of the layer: they evict the same tokens
  bool group_max = false;    // max over the query group instead of the mean. CPU path only

  int parts() const { return past ? 2 : std::min(queries, kMaxParts); }                 // columns
  int part_size() const { return past ? queries : (queries + parts() - 1) / parts(); }  // queries per part
  bool operator==(const AttentionWindow&) const = default;
};

// Mean and covariance of each query head's queries. Costs head_dim^2 operations per token and query head. Requires
// original positions and the CPU path.
struct QueryMoments {
  // Per query head: [count][mean: head_dim][covariance: head_dim x head_dim].
  static constexpr std::size_t floats(int head_dim) {
    const auto d = static_cast<std::size_t>(head_dim);
    return 1 + d + d * d;
  }
  bool operator==(const QueryMoments&) const = default;
};

// The last queries of each query head, to whose attention outputs mechanism `match` fits. The method plan declares it.
struct ReferenceQueries {
  int queries = 0;
  // Per query head: [queries][position tag, query: head_dim] (engine/mechanism/query_statistics.h).
  std::size_t floats(int head_dim) const {
    return static_cast<std::size_t>(queries) * (1 + static_cast<std::size_t>(head_dim));
  }
  bool operator==(const ReferenceQueries&) const = default;
};

struct Keys {  // f32
  bool operator==(const Keys&) const = default;
};
struct Values {  // f32
  bool operator==(const Values&) const = default;
};
// A number per token, computed once from its key and value: Policy::score_inserted(), which gets what score() gets with
// score_on_insert. Requires an AttentionWindow.
struct InsertScore {
  bool operator==(const InsertScore&) const = default;
};
struct Signals {
  std::optional<AttentionSum> attention_sum = {};
  std::optional<AttentionMax> attention_max = {};
  std::optional<AttentionWindow> attention_window = {};
  std::optional<QueryMoments> query_moments = {};
  std::optional<Keys> keys = {};
  std::optional<Values> values = {};
  std::optional<InsertScore> insert_score = {};
  std::optional<ReferenceQueries> references = {};

  bool ordered = false;  // tokens oldest first, without empty slots (policies that pool over neighbours)
  // A token's score depends only on its own key and value: score() gets the newly inserted tokens, once, with keys and
  // values as computed by the model (un-rotated, not rounded to the cache's type). No page is read.
  // If false, score() gets all tokens at each decision, with keys as stored: rotated to their position if positions are
  // `original`, un-rotated if they are `cache`.
  bool score_on_insert = false;
  // After the prompt, the model reads it again, in parts; only this repetition's weights count, and its tokens are
  // removed. Requires schedule `prompt` or `prompt+step`.
  bool repeat = false;
  bool model = false;  // needs Policy::prepare()
  // Stored keys must be rotated to their positions in the text: the score rotates queries to future positions.
  bool original_positions = false;
  bool pairs = false;      // score() compares all tokens of a head with each other
  bool own_heads = false;  // though only positions matter, each head has its own scores

  bool operator==(const Signals&) const = default;

  bool weights() const { return attention_sum || attention_max || attention_window; }  // attention returns weights
  bool rows() const { return keys || values; }
  bool queries() const { return query_moments || references; }  // attention reports queries
  // Keys and values of newly inserted tokens are reported.
  bool reads_inserted() const { return score_on_insert || insert_score; }
  // Only positions matter: unless own_heads, all heads of a sequence evict the same tokens, and one decision is enough.
  bool positions_only() const { return !weights() && !rows() && !query_moments && !insert_score; }
  // Scores are computed before an eviction; if false, in every step, from its tokens or weights.
  bool at_decision() const { return attention_window || (rows() && !score_on_insert); }
  bool whole_layer() const { return attention_window && attention_window->whole_layer; }
  // How a step's weights are reduced to one number per token.
  WeightReduction reduction() const {
    if (attention_max) return WeightReduction::kMaxOverAll;
    return attention_window && attention_window->group_max ? WeightReduction::kMaxOverGroup
                                                           : WeightReduction::kMeanOverGroup;
  }

  bool sums() const { return attention_sum && attention_window; }  // sum over all queries, in a column
  int parts() const { return attention_window ? attention_window->parts() : 0; }
  int sum_column() const { return parts(); }                        // if sums(); the window's columns are before it
  int insert_column() const { return parts() + (sums() ? 1 : 0); }  // if insert_score
  int columns() const { return insert_column() + (insert_score ? 1 : 0); }
  // Floats per KV head that belong to no token.
  std::size_t head_floats(int group, int head_dim) const {
    return static_cast<std::size_t>(group) *
           ((query_moments ? QueryMoments::floats(head_dim) : 0) + (references ? references->floats(head_dim) : 0));
  }
};

}  // namespace palimpsest
