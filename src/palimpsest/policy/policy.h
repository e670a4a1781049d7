// A policy ranks the tokens of one head. It never bounds, selects or moves: `evict` does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// What a policy wants to see. Nothing is computed that no policy asked for.
struct Needs {
  static constexpr int kAll = -1;
  // kAll: the weights of every query, shown once, as they come. n: those of the last n queries, summed, at each
  // decision. They are kept in up to 8 parts, of which the oldest leaves as a whole: so of the last n - n / 8 to n. (Of
  // a chunk of a prompt, in which tokens come at once: of its last n.) 0: none.
  int attention_window = 0;
  bool past_window = false;    // the window is two: the n queries before, and those of the current n (EMS's buckets)
  bool attention_sum = false;  // beside a window: also the weights of every query so far, summed
  bool whole_layer = false;    // the mean of `attention` over all heads of the layer: then they decide alike
  bool keys = false;           // f32
  bool values = false;         // f32
  // Of a query group's weights the greatest instead of the mean (kGreatest), or, with kAll, the greatest of all queries
  // of a step (kPeak). The CPU's own path only.
  Received received = Received::kMean;
  // What the model's queries are like: HeadView::queries. Costs head_dim^2 operations a token and query head, and as
  // many floats. With original positions, on the CPU's own path.
  bool queries = false;
  // The prompt is read once more, in parts, when it was read; the weights (attention_window is kAll) are those of that
  // repetition, which is forgotten. With schedules `prompt` and `prompt+step`.
  bool repeat = false;
  bool ordered = false;  // tokens oldest first, empty slots left out (policies that pool over neighbours)
  // A token's score follows from its own key and value and never changes: the view is of the fresh tokens only, once,
  // with keys and values as the model made them (un-rotated, not rounded to the cache's type). No page is read again.
  // Else the view is of all tokens at each decision, with keys as the cache holds them: rotated at their place if
  // positions are `original`, un-rotated if they are `cache`.
  bool at_birth = false;
  bool model = false;  // which model it is: prepare()

  // Only positions matter: then every head of a sequence decides alike and one decision serves all.
  bool positions_only() const { return attention_window == 0 && !keys && !values && !queries; }
  // Scores are asked for when tokens have to leave; else when tokens or weights come.
  bool at_decision() const { return attention_window > 0 || ((keys || values) && !at_birth); }
  int parts() const { return attention_window > 0 ? std::min(attention_window, past_window ? 2 : 8) : 0; }
  int part_size() const {  // queries of a part of the window
    return past_window ? attention_window : (attention_window + parts() - 1) / std::max(1, parts());
  }
  int columns() const { return parts() + (attention_sum ? 1 : 0); }  // of the slot table; the sum is the last
};

// Queries to come, as those so far say: mean and covariance of each head of the query group, turned to where the next
// 512 are on the average (Expected Attention, arXiv 2510.00636, section 3). The first 4 tokens' do not count.
struct ExpectedQueries {
  static constexpr Position kLeftOut = 4, kAhead = 512;
  Rows mean;        // [heads of the group][head_dim]
  Rows covariance;  // [heads of the group * head_dim][head_dim]
  float scale = 0;  // of a query's product with a key
};

// The tokens of one (sequence, layer, KV head), in slot order; oldest first only if `ordered`, or if they are the fresh
// ones of `at_birth`. A slot that holds no token has position kNoPosition and any key; what is written to its score is
// ignored.
struct HeadView {
  std::span<const Position> position = {};    // true token positions
  std::span<const float> attention = {};      // weight received, as asked for in Needs
  std::span<const float> attention_sum = {};  // of all queries so far
  Rows keys = {}, values = {};                // one a token, empty unless asked for
  int fresh = 0;                              // tokens added since the last call
  int table = 0;                              // layer * KV heads + head
  ExpectedQueries queries = {};
};

// The model whose tokens are scored, for policies that were made for it (Needs::model).
struct PolicyModel {
  std::string path;               // of its file; empty: random weights
  std::uint64_t fingerprint = 0;  // model/fingerprint.h
  int layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
  std::string scorer;  // Method::scorer: a file, or "auto"
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Needs needs() const = 0;
  // Once, before the first score, if needs().model. Throws Error: this is no model for it.
  virtual void prepare(const PolicyModel& /*model*/) {}
  // `score` is in/out: one float per token that travels with it, 0 at birth. Higher is kept.
  virtual void score(const HeadView& head, std::span<float> score) const = 0;
};

// The register. A policy is one file of this folder; its name is the file's, with dashes: lag_kv.cpp is "lag-kv". The
// build lists the files, so nothing else is touched. The file ends with
//   PALIMPSEST_POLICY(lag_kv, LagKv, "one line, with the paper")
struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Policy> (*make)();
};

#define PALIMPSEST_POLICY(file, Class, summary)                                                    \
  PolicyEntry policy_entry_##file(std::string_view name) {                                         \
    return {name, summary, []() -> std::unique_ptr<Policy> { return std::make_unique<Class>(); }}; \
  }

const std::vector<PolicyEntry>& policies();                  // sorted by name
std::unique_ptr<Policy> make_policy(std::string_view name);  // throws Error that lists the names
// For policies outside this library. Before any thread uses the register; name and summary must outlive it. Throws
// Error if the name is taken or not of lower-case letters, digits and dashes.
void register_policy(const PolicyEntry& entry);

}  // namespace palimpsest
