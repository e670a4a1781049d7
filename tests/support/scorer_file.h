// Writes scorers of policies `learned` and `temporal` in the trainer's format (src/palimpsest/policy/scorer_file.h).
#pragma once

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/checksum.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {

inline std::vector<std::byte> scorer_bytes(const PolicyModel& model, std::span<const float> weights,
                                           const std::string& policy = "learned") {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  for (const char c : std::string(policy == "learned" ? "PLMPSCOR" : "PLMPTIME")) out.put(c);
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
  std::vector<float> weights(
      static_cast<std::size_t>(model.heads) *
      static_cast<std::size_t>((policy == "learned" ? 3 : 9) + model.head_dim + model.value_dim));
  for (float& w : weights) w = normal(random);
  write_bytes(path, scorer_bytes(model, weights, policy));
  return weights;
}

}  // namespace palimpsest::testing
