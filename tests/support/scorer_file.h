// Writes scorers of policies `learned`, `kvzap`, `temporal` and `triattention` in the format of
// src/palimpsest/policy/scorer_file.h.
#pragma once

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/checksum.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {

// The method's policy reads a file made for one model.
inline bool needs_scorer(const Method& method) {
  return method.evicts() && method.policy != kAutoPolicy && make_policy(method.policy)->signals().model;
}

struct ScorerKind {
  const char* magic;
  std::size_t floats;  // of a KV head
};

inline ScorerKind scorer_kind(const PolicyModel& model, const std::string& policy) {
  const std::size_t key = at(model.head_dim), both = key + at(model.value_dim);
  if (policy == "temporal") return {"PLMPTIME", 9 + both};
  if (policy == "triattention") return {"PLMPCENT", at(model.group) * (key + key / 2)};
  return {policy == "kvzap" ? "PLMPKZAP" : "PLMPSCOR", 3 + both};
}

inline std::vector<std::byte> scorer_bytes(const PolicyModel& model, std::span<const float> weights,
                                           const std::string& policy = "learned") {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  for (const char c : std::string(scorer_kind(model, policy).magic)) out.put(c);
  out.put(std::uint32_t{1});
  out.put(std::uint32_t{0x01020304});
  out.put(model.fingerprint);
  for (const std::int32_t size : {model.layers, model.kv_heads, model.head_dim, model.value_dim}) out.put(size);
  out.array(weights);
  Checksum sum;
  sum.add(bytes);
  out.put(sum.value());
  return bytes;
}

inline void write_bytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

// With random weights.
inline std::vector<float> write_scorer(const std::string& path, const PolicyModel& model, unsigned seed,
                                       const std::string& policy = "learned") {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> weights(at(model.heads) * scorer_kind(model, policy).floats);
  for (float& w : weights) w = normal(random);
  write_bytes(path, scorer_bytes(model, weights, policy));
  return weights;
}

}  // namespace palimpsest::testing
