// A scorer trained on this model's attention predicts a token's future attention from its key and value (the sparse
// eviction paper names a learned policy without describing it). Linear, with weights per head:
//
//   score = w0 + w1 ||k|| + w2 ||v|| + a . k + b . v        k un-rotated
//
// The target is the square root of the mean attention over the rest of the text (tools/train/scorer), so a score never
// changes: it is computed once, on insert. Attention and age as inputs: docs/decisions/0014.
//
// File format, little-endian:
//   "PLMPSCOR" version byte-order fingerprint:u64 | layers kv_heads head_dim value_dim: i32 | count:u64 weights: f32
//   [KV heads of all layers][3 + head_dim + value_dim] | checksum of all bytes before: u64
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <vector>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/mapped_file.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

constexpr std::array<char, 8> kMagic = {'P', 'L', 'M', 'P', 'S', 'C', 'O', 'R'};
constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

std::string scorer_path(const PolicyModel& model) {
  namespace fs = std::filesystem;
  const bool named = model.scorer != "auto";
  if (!named && model.path.empty())
    fail("policy learned: a model of random weights has no scorer; name one: scorer=FILE");
  const fs::path path = named ? fs::path(model.scorer) : fs::path(model.path).replace_extension(".scorer");
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    fail("policy learned: there is no scorer {}: train one (tools/train/scorer), or name it with scorer=FILE",
         path.string());
  return path.string();
}

std::vector<float> read_scorer(const std::string& path, const PolicyModel& model) {
  const MappedFile file(path, "a scorer");
  const auto all = file.bytes();
  if (all.size() < sizeof kMagic || std::memcmp(all.data(), kMagic.data(), sizeof kMagic) != 0)
    fail("{}: is no scorer for policy learned", path);
  ByteReader in(all, path + " is damaged");
  static_cast<void>(in.get<std::array<char, 8>>());
  if (const auto version = in.get<std::uint32_t>(); version != kVersion)
    fail("{}: is a scorer of version {}; this program reads version {}: train it again", path, version, kVersion);
  if (in.get<std::uint32_t>() != kByteOrder) fail("{}: was written for a machine of another byte order", path);
  in.require(all.size() > sizeof kMagic + 8, "it ends too early");
  Checksum sum;
  sum.add(all.first(all.size() - 8));
  std::uint64_t checksum = 0;
  std::memcpy(&checksum, all.data() + all.size() - 8, 8);
  in.require(sum.value() == checksum, "its checksum is wrong: truncated or changed; train it again");

  if (in.get<std::uint64_t>() != model.fingerprint)
    fail("{}: was trained on another model than {}: train one on it (tools/train/scorer)", path,
         model.path.empty() ? "this" : model.path);
  for (const int expected : {model.layers, model.kv_heads, model.head_dim, model.value_dim})
    in.require(in.get<std::int32_t>() == expected, "its shape is not the model's");
  std::vector<float> weights = in.array<float>();
  const auto heads = static_cast<std::size_t>(model.heads);
  in.require(weights.size() == heads * static_cast<std::size_t>(3 + model.head_dim + model.value_dim),
             "it has another number of weights");
  for (const float w : weights) in.require(std::isfinite(w), "a weight is not a number");
  return weights;
}

class Learned final : public Policy {
 public:
  Signals signals() const override {
    return {.keys = Keys{}, .values = Values{}, .score_on_insert = true, .model = true};
  }

  void prepare(const PolicyModel& model) override { weights_ = read_scorer(scorer_path(model), model); }

  void score(const HeadView& head, std::span<float> score) const override {
    const auto dim = static_cast<std::size_t>(head.keys.width), value_dim = static_cast<std::size_t>(head.values.width);
    const std::size_t width = 3 + dim + value_dim;
    const auto w = std::span(weights_).subspan(static_cast<std::size_t>(head.table) * width, width);
    for (std::size_t i = 0; i < score.size(); ++i) {
      const auto key = head.keys[static_cast<int>(i)], value = head.values[static_cast<int>(i)];
      score[i] =
          w[0] + w[1] * norm(key) + w[2] * norm(value) + dot(w.subspan(3, dim), key) + dot(w.subspan(3 + dim), value);
    }
  }

 private:
  std::vector<float> weights_;  // [KV heads of all layers][3 + head_dim + value_dim]
};

}  // namespace

PALIMPSEST_POLICY(learned, Learned, "score of a small network trained on this model's attention")

}  // namespace palimpsest
