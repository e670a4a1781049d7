// Files of weights for policies that were trained on one model's attention (Signals::model). Little-endian:
//   magic[8] version byte-order fingerprint:u64 | layers kv_heads head_dim value_dim: i32 | count:u64 weights: f32
//   [KV heads of all layers][ScorerFormat::floats] | checksum of all bytes before: u64
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest {

struct ScorerFormat {
  std::string_view policy, magic, extension;  // "learned"; 8 characters; ".scorer": beside the model
  std::string_view made_by = "make one with `palimpsest fit -m MODEL`";
  std::size_t floats = 0;  // weights of a KV head
};

// The weights, [KV heads of all layers][format.floats]. Throws Error: missing, damaged, or of another model.
std::vector<float> read_scorer(const ScorerFormat& format, const PolicyModel& model);
// The bytes of such a file.
std::string scorer_bytes(const ScorerFormat& format, const PolicyModel& model, std::span<const float> weights);
// Throws Error: the file cannot be written.
void write_scorer(const std::string& path, const ScorerFormat& format, const PolicyModel& model,
                  std::span<const float> weights);

}  // namespace palimpsest
