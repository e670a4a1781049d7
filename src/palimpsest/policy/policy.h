// A policy ranks the tokens of one head. It never bounds, selects or moves: `evict` does.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

namespace palimpsest {

// What a policy wants to see. Nothing is computed that no policy asked for.
struct Needs {
  static constexpr int kAll = -1;
  int attention_window = 0;  // weights of the last n queries (kAll: of every query); 0: none
  bool keys = false;         // un-rotated keys, f32
  bool values = false;
  bool queries = false;
  bool ordered = false;  // tokens oldest first (policies that pool over neighbours)

  // Only positions matter: then every head of a sequence decides alike and one decision serves all.
  bool positions_only() const { return attention_window == 0 && !keys && !values && !queries; }
};

// The live tokens of one (sequence, layer, KV head), in slot order; oldest first only if `ordered`.
struct HeadView {
  std::span<const Position> position;  // true token positions
  std::span<const float> attention;    // weight received, as asked for in Needs; mean over the query group
  Rows keys, values;                   // [n, head_dim], empty unless asked for
  int fresh = 0;                       // tokens added since the last call
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual Needs needs() const = 0;
  // `score` is in/out: one float per token that travels with it, 0 at birth. Higher is kept.
  virtual void score(const HeadView& head, std::span<float> score) const = 0;
};

// The register. A policy file ends with:  PALIMPSEST_POLICY("name", ClassName, "one line, with the paper");
struct PolicyEntry {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Policy> (*make)();
};

const std::vector<PolicyEntry>& policies();                  // sorted by name
std::unique_ptr<Policy> make_policy(std::string_view name);  // throws Error that lists the names

}  // namespace palimpsest
