// Files of weights for policies that were trained on one model's attention (Signals::model). Little-endian:
//   magic[8] version byte-order fingerprint:u64 | layers kv_heads head_dim value_dim: i32 | count:u64 weights: f32
//   [KV heads of all layers][inputs + head_dim + value_dim] | checksum of all bytes before: u64
#pragma once

#include <string_view>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest {

struct ScorerFormat {
  std::string_view policy, magic, extension;  // "learned"; 8 characters; ".scorer": beside the model
  int inputs = 0;                             // weights of a head beside those of the key and the value
};

// The weights, [KV heads of all layers][inputs + head_dim + value_dim]. Throws Error: missing, damaged, or of another
// model.
std::vector<float> read_scorer(const ScorerFormat& format, const PolicyModel& model);

}  // namespace palimpsest
