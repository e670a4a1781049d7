#include "palimpsest/policy/scorer_file.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "palimpsest/core/byte_stream.h"
#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/core/regular_file.h"

namespace palimpsest {
namespace {

using Magic = std::array<char, 8>;

constexpr std::uint32_t kVersion = 1, kByteOrder = 0x01020304;

std::string scorer_path(const ScorerFormat& format, const PolicyModel& model) {
  namespace fs = std::filesystem;
  const bool named = model.scorer != "auto";
  if (!named && model.path.empty())
    fail("policy {}: a model of random weights has no scorer; name one: scorer=FILE", format.policy);
  const fs::path path = named ? fs::path(model.scorer) : fs::path(model.path).replace_extension(format.extension);
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return path.string();
  if (named) fail("policy {}: there is no scorer {}: {}", format.policy, path.string(), format.made_by);
  fail("policy {} needs {} beside the model: {}, or name one with scorer=FILE", format.policy, path.filename().string(),
       format.made_by);
}

}  // namespace

std::vector<float> read_scorer(const ScorerFormat& format, const PolicyModel& model) {
  assert(format.magic.size() == sizeof(Magic));
  const std::string path = scorer_path(format, model);
  const auto file = std::make_shared<const RegularFile>(path, "a scorer");
  ByteReader in(file, path + " is damaged");
  if (in.left() < sizeof(Magic) || !std::ranges::equal(in.get<Magic>(), format.magic))
    fail("{}: is no scorer for policy {}", path, format.policy);
  if (const auto version = in.get<std::uint32_t>(); version != kVersion)
    fail("{}: is a scorer of version {}; this program reads version {}: make it again", path, version, kVersion);
  if (in.get<std::uint32_t>() != kByteOrder) fail("{}: was written for a machine of another byte order", path);
  in.require(in.left() > 8, "it ends too early");
  ByteReader all = in;
  all.skip(all.left() - 8);
  all.require_checksum();

  if (in.get<std::uint64_t>() != model.fingerprint)
    fail("{}: was made for another model than {}: {}", path, model.path.empty() ? "this" : model.path, format.made_by);
  for (const int expected : {model.layers, model.kv_heads, model.head_dim, model.value_dim})
    in.require(in.get<std::int32_t>() == expected, "its shape is not the model's");
  std::vector<float> weights = in.array<float>();
  in.require(weights.size() == at(model.heads) * format.floats, "it has another number of weights");
  for (const float w : weights) in.require(std::isfinite(w), "a weight is not a number");
  return weights;
}

std::string scorer_bytes(const ScorerFormat& format, const PolicyModel& model, std::span<const float> weights) {
  assert(format.magic.size() == sizeof(Magic) && weights.size() == at(model.heads) * format.floats);
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> data) { bytes.insert(bytes.end(), data.begin(), data.end()); });
  out.bytes(std::as_bytes(std::span(format.magic)));
  out.put(kVersion);
  out.put(kByteOrder);
  out.put(model.fingerprint);
  for (const int size : {model.layers, model.kv_heads, model.head_dim, model.value_dim}) out.put(std::int32_t{size});
  out.array(weights);
  Checksum sum;
  sum.add(bytes);
  out.put(sum.value());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void write_scorer(const std::string& path, const ScorerFormat& format, const PolicyModel& model,
                  std::span<const float> weights) {
  write_new_file(path, scorer_bytes(format, model, weights));
}

}  // namespace palimpsest
