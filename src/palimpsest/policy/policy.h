// A policy scores the tokens of one head. It never bounds, selects or moves: evict/ does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/interrupt.h"
#include "palimpsest/core/position_view.h"
#include "palimpsest/core/rope_options.h"
#include "palimpsest/core/types.h"
#include "palimpsest/policy/options.h"
#include "palimpsest/policy/signals.h"

namespace palimpsest {

// Predicted queries: mean and covariance of the past queries of each head of the query group, rotated by the mean
// rotation of the next kAhead positions (Expected Attention, arXiv 2510.00636, section 3). Queries of the first
// kLeftOut tokens are excluded.
struct ExpectedQueries {
  static constexpr Position kLeftOut = 4, kAhead = 512;
  Rows mean;        // [heads of the group][head_dim]
  Rows covariance;  // [heads of the group * head_dim][head_dim]
  float scale = 0;  // attention scale: 1 / sqrt(head_dim)
};

// The tokens of one (sequence, layer, KV head), in slot order; oldest first if Signals::ordered, or with
// Signals::score_on_insert, which has the newly inserted tokens only. An empty slot has position kNoPosition and any
// key; its score is ignored.
struct HeadView {
  PositionView position = {};                 // positions in the text
  std::span<const float> attention = {};      // attention weights, reduced as the signal says
  std::span<const float> attention_sum = {};  // over all queries so far
  Rows keys = {}, values = {};                // one row per token; empty without the signal or reads_rows()
  std::span<const float> insert_score = {};   // Policy::score_inserted() of each token, if Signals::insert_score
  int inserted = 0;                           // tokens added since the last call
  int table = 0;                              // slot table: flat index of the KV head over all layers
  ExpectedQueries queries = {};
  // A score that compares tokens with each other checks it at least every few milliseconds (nullptr: never).
  const Interrupt* interrupt = nullptr;
};

// The model, for policies that were trained on one (Signals::model).
struct PolicyModel {
  std::string path;                                           // model file; empty: random weights
  std::uint64_t fingerprint = 0;                              // model/fingerprint.h
  int layers = 0, kv_heads = 0, head_dim = 0, value_dim = 0;  // max over layers
  int heads = 0;                                              // KV heads of all layers
  int group = 1;                                              // query heads per KV head: max over layers
  std::vector<RopeOptions> rope = {};                         // [heads] rotation of stored keys
  std::string scorer;                                         // Method::scorer: a file, or "auto"
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Signals signals() const = 0;
  // Its own options. They are set before signals() is called, and refer to the policy.
  virtual std::vector<PolicyOption> options() { return {}; }
  // Called once, before the first score, if signals().model. Throws Error: trained on another model.
  virtual void prepare(const PolicyModel& /*model*/) {}
  // Whether score() reads keys or values this time; if not, they are empty. In slot order.
  virtual bool reads_rows(const PositionView& /*position*/, std::span<const float> /*score*/) const { return true; }
  // Only if signals().insert_score: one number per newly inserted token, kept with it (HeadView::insert_score).
  virtual void score_inserted(const HeadView& /*head*/, std::span<float> /*score*/) const {}
  // For devices, which then keep the scores and choose the victims of a decode step: score() of one token is
  // score = fading() * score + attention. nullopt: it is something else.
  virtual std::optional<float> fading() const { return std::nullopt; }
  // `score` is in/out: one float per token that moves with it, 0 on insert. Higher is kept.
  virtual void score(const HeadView& head, std::span<float> score) const = 0;
};

// The registry. A policy is one file of this folder; its name is the file's, with dashes: lag_kv.cpp is "lag-kv". The
// build lists the files: nothing else changes. The file ends with
//   PALIMPSEST_POLICY(lag_kv, LagKv, "one line, with the paper")
struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::function<std::unique_ptr<Policy>()> make;
  std::vector<OptionText> options = {};
};

template <class P>
PolicyEntry policy_entry(std::string_view name, std::string_view summary) {
  const std::vector<PolicyOption> options = P().options();
  return {name, summary, [] { return std::make_unique<P>(); }, {options.begin(), options.end()}};
}

#define PALIMPSEST_POLICY(file, Class, summary)            \
  PolicyEntry policy_entry_##file(std::string_view name) { \
    return policy_entry<Class>(name, summary);             \
  }

// The registry is thread-safe.
std::vector<PolicyEntry> policies();  // sorted by name
// Throws Error that lists the names, or for a bad value. Options that the policy does not have are ignored.
std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options = {});
bool has_option(std::string_view policy, std::string_view option);
// Options of all policies. One of several policies is listed once.
std::vector<OptionText> policy_options();
std::vector<std::string_view> policies_with_option(std::string_view option);
// Throws Error for a value that `policy` does not accept; that some policy with the option does not, if it has none.
void set_policy_option(PolicyOptions& options, std::string_view policy, std::string_view option,
                       std::string_view value);
// For policies outside this library. Name and summary must outlive the program's last use of the registry.
// Throws Error if the name is taken or has other characters than lower-case letters, digits and dashes.
void register_policy(const PolicyEntry& entry);

}  // namespace palimpsest
