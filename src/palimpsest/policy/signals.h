// What a policy looks at: its signals. A signal that no policy asks for is not computed, and one runs only in the
// phases in which it can still decide (evict/method_plan.h). Each signal owns its memory: columns of the slot tables,
// which move with their tokens, or statistics of whole heads.
//
//   signal            computed from              memory                        shown as
//   AttentionSum      each step's weights        none: what is kept is the     HeadView::attention, in every step
//                                                token's score
//   ... and a window                             1 column                      HeadView::attention_sum, when tokens
//   leave AttentionMax      each step's weights        none                          HeadView::attention, in every step
//   AttentionWindow   weights of n queries       up to 8 columns               HeadView::attention, when tokens leave
//   QueryMoments      queries                    d + d x d + 1 floats of each  HeadView::queries, when tokens leave
//                                                query head
//   Keys, Values      the cache, or new tokens   none                          HeadView::keys, values
//   Hidden            -                          -                             reserved: unsupported
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>

#include "palimpsest/core/types.h"

namespace palimpsest {

// The weights of every query, summed over the queries of a step; of a query group's heads their mean. Alone: shown
// once, when a step's weights are complete. Beside a window: summed over all queries so far, in a column of its own.
struct AttentionSum {
  bool operator==(const AttentionSum&) const = default;
};

// The largest weight of a step's queries and the group's heads, shown once, when they are complete. CPU path only.
struct AttentionMax {
  bool operator==(const AttentionMax&) const = default;
};

// The weights of the last `queries` queries, summed. They are kept in up to 8 parts, of which the oldest is dropped as
// a whole: so of the last n - n / 8 to n. Of a chunk of a prompt, whose tokens come at once: of its last n.
struct AttentionWindow {
  int queries = 0;
  bool past = false;         // two windows: the n queries before, and those of the current n (EMS's buckets)
  bool whole_layer = false;  // the mean over all heads of the layer: then they decide alike
  bool group_max = false;    // of a query group's heads the maximum instead of the mean. CPU path only

  int parts() const { return std::min(queries, past ? 2 : 8); }                         // columns
  int part_size() const { return past ? queries : (queries + parts() - 1) / parts(); }  // queries of a part
  bool operator==(const AttentionWindow&) const = default;
};

// Mean and covariance of each query head's queries. Costs head_dim^2 operations a token and query head. With original
// positions, on the CPU path.
struct QueryMoments {
  // Of a query head: [count][mean: head_dim][covariance: head_dim x head_dim].
  static constexpr std::size_t floats(int head_dim) {
    const auto d = static_cast<std::size_t>(head_dim);
    return 1 + d + d * d;
  }
  bool operator==(const QueryMoments&) const = default;
};

struct Keys {  // f32
  bool operator==(const Keys&) const = default;
};
struct Values {  // f32
  bool operator==(const Values&) const = default;
};
struct Hidden {  // the layer's input of each token: reserved
  bool operator==(const Hidden&) const = default;
};

struct Signals {
  std::optional<AttentionSum> attention_sum = {};
  std::optional<AttentionMax> attention_max = {};
  std::optional<AttentionWindow> attention_window = {};
  std::optional<QueryMoments> query_moments = {};
  std::optional<Keys> keys = {};
  std::optional<Values> values = {};
  std::optional<Hidden> hidden = {};

  bool ordered = false;  // tokens oldest first, empty slots left out (policies that pool over neighbours)
  // A token's score follows from its own key and value and never changes: the view is of the new tokens only, once,
  // with keys and values as the model made them (un-rotated, not rounded to the cache's type). No page is read again.
  // Else the view is of all tokens at each decision, with keys as the cache holds them: rotated at their position if
  // positions are `original`, un-rotated if they are `cache`.
  bool score_on_insert = false;
  // The prompt is read once more, in parts, after it was read; the weights are those of that repetition, which is then
  // forgotten. With schedules `prompt` and `prompt+step`.
  bool repeat = false;
  bool model = false;  // which model it is: Policy::prepare()

  bool operator==(const Signals&) const = default;

  bool weights() const { return attention_sum || attention_max || attention_window; }  // attention hands them out
  bool rows() const { return keys || values; }
  // Only positions matter: then every head of a sequence decides alike and one decision serves all.
  bool positions_only() const { return !weights() && !rows() && !query_moments; }
  // Scores are computed when tokens have to be evicted; else when tokens or weights come.
  bool at_decision() const { return attention_window || (rows() && !score_on_insert); }
  bool whole_layer() const { return attention_window && attention_window->whole_layer; }
  // How a step's weights become one number a token.
  WeightReduction reduction() const {
    if (attention_max) return WeightReduction::kMaxOverAll;
    return attention_window && attention_window->group_max ? WeightReduction::kMaxOverGroup
                                                           : WeightReduction::kMeanOverGroup;
  }
  // The last queries of a step whose weights count.
  int queries() const { return attention_window ? attention_window->queries : INT32_MAX; }

  bool sums() const { return attention_sum && attention_window; }  // over all queries, in a column
  int parts() const { return attention_window ? attention_window->parts() : 0; }
  int sum_column() const { return parts(); }  // if sums(); those before it are the window's
  int columns() const { return parts() + (sums() ? 1 : 0); }
  // Floats of each KV head that belong to no token.
  std::size_t head_floats(int group, int head_dim) const {
    return query_moments ? static_cast<std::size_t>(group) * QueryMoments::floats(head_dim) : 0;
  }
};

}  // namespace palimpsest
