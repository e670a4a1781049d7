// A policy ranks the tokens of one head. It never bounds, selects or moves: `evict` does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/position_view.h"
#include "palimpsest/core/types.h"
#include "palimpsest/policy/signals.h"

namespace palimpsest {

// Queries to come, as those so far say: mean and covariance of each head of the query group, rotated to where the next
// 512 are on the average (Expected Attention, arXiv 2510.00636, section 3). The first 4 tokens' do not count.
struct ExpectedQueries {
  static constexpr Position kLeftOut = 4, kAhead = 512;
  Rows mean;        // [heads of the group][head_dim]
  Rows covariance;  // [heads of the group * head_dim][head_dim]
  float scale = 0;  // of a query's product with a key
};

// The tokens of one (sequence, layer, KV head), in slot order; oldest first only if Signals::ordered, or if they are
// the new ones of Signals::score_on_insert. A slot that holds no token has position kNoPosition and any key; what is
// written to its score is ignored.
struct HeadView {
  PositionView position = {};                 // true token positions
  std::span<const float> attention = {};      // weights received, as the signal says
  std::span<const float> attention_sum = {};  // of all queries so far
  Rows keys = {}, values = {};                // one a token, empty unless asked for
  int inserted = 0;                           // tokens added since the last call
  int table = 0;                              // which head, counted over all layers
  ExpectedQueries queries = {};
};

// The model whose tokens are scored, for policies that were made for it (Signals::model).
struct PolicyModel {
  std::string path;                                           // of its file; empty: random weights
  std::uint64_t fingerprint = 0;                              // model/fingerprint.h
  int layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0;  // kv_heads: of the layer that has most
  int heads = 0;                                              // KV heads of all layers
  std::string scorer;                                         // Method::scorer: a file, or "auto"
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Signals signals() const = 0;
  // Once, before the first score, if signals().model. Throws Error: this is no model for it.
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
