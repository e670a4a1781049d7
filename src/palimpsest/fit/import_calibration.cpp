#include "palimpsest/fit/import_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/eval/head_files.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/policy/query_centres.h"

namespace palimpsest {
namespace {

std::string shape_text(const HeadGeometry& geometry) {
  return fmt::format("{} layers of up to {} KV heads and {} query heads each", geometry.layers(),
                     geometry.max_kv_heads(), geometry.max_kv_heads() * geometry.max_group());
}

// --- statistics of TriAttention: layerLL_headHH of each query head, one number for each rotated pair

const std::vector<float>& statistic(const ForeignFile& file, const std::string& name, const HeadGeometry& geometry,
                                    int layer, int query_head, const char* which, std::size_t pairs) {
  const std::string key = fmt::format("stats.layer{:02}_head{:02}.{}", layer, query_head, which);
  const auto found = file.tensors.find(key);
  if (found == file.tensors.end())
    fail("{}: has no {}: the model has {}; take statistics of this model", name, key, shape_text(geometry));
  const std::vector<float>& values = found->second.values;
  if (values.size() != pairs)
    fail("{}: {} has {} numbers, and the model rotates {} pairs of a head's dimensions: take statistics of this model",
         name, key, values.size(), pairs);
  if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); }))
    fail("{} is damaged: {} has a value that is not a number", name, key);
  return values;
}

Imported import_centres(const ForeignFile& file, const std::string& name, const Model& model) {
  const HeadGeometry& geometry = model.hyper().geometry;
  if (model.hyper().positions() != PositionKind::kRotary)
    fail("{}: statistics of TriAttention are for models with rotary positions, and this one has none", name);
  const PolicyModel of = policy_model(model, {});
  const QueryCentres layout(of);
  const auto layers = static_cast<std::size_t>(geometry.layers());
  if (file.tensors.contains(fmt::format("stats.layer{:02}_head00.q_abs_mean", layers)) ||
      file.tensors.contains(
          fmt::format("stats.layer00_head{:02}.q_abs_mean", geometry.layer(0).kv_heads * geometry.layer(0).group())))
    fail("{}: has more layers or heads than the model, which has {}: take statistics of this model", name,
         shape_text(geometry));
  std::vector<float> weights(at(of.heads) * layout.floats());
  for (int head = 0; head < of.heads; ++head) {
    const int layer = geometry.layer_of(head), group = geometry.layer(layer).group();
    const RotatedPairs pairs(of.rope[at(head)]);
    for (int member = 0; member < group; ++member) {
      const int query = geometry.kv_head_of(head) * group + member;
      const auto values = [&](const char* which) -> const std::vector<float>& {
        return statistic(file, name, geometry, layer, query, which, pairs.count);
      };
      const auto &real = values("q_mean_real"), &imaginary = values("q_mean_imag"), &length = values("q_abs_mean");
      const auto mean = layout.mean(std::span(weights), head, member);
      const auto lengths = layout.lengths(std::span(weights), head, member);
      for (std::size_t pair = 0; pair < pairs.count; ++pair) {
        mean[pairs.real(pair)] = real[pair];
        mean[pairs.imaginary(pair)] = imaginary[pair];
        lengths[pair] = length[pair];
      }
    }
  }
  const auto named = file.texts.find("metadata.model_name");
  return {.extension = std::string(layout.format().extension),
          .what = "statistics of TriAttention",
          .of = named == file.texts.end() ? "" : named->second,
          .content = scorer_bytes(layout.format(), of, weights)};
}

// --- head budgets of Attention Matching: {"L5H0": share of all, ...}, without heads that have a window

// "L12H3" -> 12, 3.
std::pair<int, int> layer_and_head(const std::string& key, const std::string& name) {
  int layer = -1, head = -1;
  const char* const end = key.data() + key.size();
  const auto first = key.starts_with('L') ? std::from_chars(key.data() + 1, end, layer) : std::from_chars_result{};
  if (first.ptr == nullptr || first.ptr == end || *first.ptr != 'H' ||
      std::from_chars(first.ptr + 1, end, head).ptr != end || layer < 0 || head < 0)
    fail("{}: '{}' is no head as in L12H3: give head budgets of Attention Matching", name, key);
  return {layer, head};
}

Imported import_budgets(std::string_view text, const std::string& name, const Model& model) {
  const HeadGeometry& geometry = model.hyper().geometry;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.empty()) fail("{} is damaged: it is no JSON object of head budgets", name);
  std::vector<double> shares(at(geometry.heads()), -1);
  double sum = 0;
  for (const auto& [key, value] : json.items()) {
    const auto [layer, head] = layer_and_head(key, name);
    if (layer >= geometry.layers() || head >= geometry.layer(layer).kv_heads)
      fail("{}: has a budget of head {}, and the model has {}: take budgets of this model", name, key,
           shape_text(geometry));
    const double share = value.is_number() ? value.get<double>() : -1;
    if (!(share >= 0 && share <= 1)) fail("{} is damaged: the budget of {} is no share from 0 to 1", name, key);
    shares[at(geometry.head(layer, head))] = share;
    sum += share;
  }
  if (!(sum > 0)) fail("{} is damaged: all budgets are 0", name);
  const auto heads = static_cast<double>(json.size());
  for (int head = 0; head < geometry.heads(); ++head) {
    double& share = shares[at(head)];
    const int layer = geometry.layer_of(head);
    if (share < 0 && geometry.layer(layer).window == INT32_MAX)
      fail("{}: has no budget of head L{}H{}, and the model has {}: take budgets of this model", name, layer,
           geometry.kv_head_of(head), shape_text(geometry));
    share = share < 0 ? 1 : share / sum * heads;  // of a head with a window: as any method gives it
  }
  return {.extension = ".profile",
          .what = "head budgets of Attention Matching",
          .of = "",
          .content = profile_text(geometry, fingerprint(model),
                                  "shares of a budget, by `palimpsest import` from head budgets of Attention Matching",
                                  shares)};
}

// --- patterns of DuoAttention: a line for each layer, a number for each KV head: its share of full attention

Imported import_pattern(std::string_view text, const std::string& name, const Model& model) {
  const HeadGeometry& geometry = model.hyper().geometry;
  std::vector<double> far;
  int layer = 0;
  for (std::size_t begin = 0; begin < text.size(); ++layer) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const char *from = text.data() + begin, *const last = text.data() + end;
    int heads = 0;
    while (true) {
      while (from != last && (*from == '\t' || *from == ' ' || *from == '\r')) ++from;
      if (from == last) break;
      double share = -1;
      const auto [next, error] = std::from_chars(from, last, share);
      if (error != std::errc() || !(share >= -1e6 && share <= 1e6) || layer >= geometry.layers())
        fail(
            "{}: is none of these: statistics of TriAttention (.pt), head budgets of Attention Matching (.json), a "
            "pattern of DuoAttention (.tsv) of this model",
            name);
      far.push_back(std::clamp(share, 0.0, 1.0));
      from = next;
      ++heads;
    }
    begin = end + 1;
    if (heads == 0 && begin >= text.size()) break;
    if (layer >= geometry.layers() || heads != geometry.layer(layer).kv_heads)
      fail("{}: line {} has {} heads, and the model has {}: take the pattern of this model", name, layer + 1, heads,
           shape_text(geometry));
  }
  if (std::ssize(far) != geometry.heads())
    fail("{}: has {} heads, and the model has {}: take the pattern of this model", name, far.size(),
         shape_text(geometry));
  return {.extension = ".duo",
          .what = "a pattern of DuoAttention",
          .of = "",
          .content = streaming_text(geometry, fingerprint(model),
                                    "streaming heads, by `palimpsest import` from a pattern of DuoAttention: the lower "
                                    "half",
                                    "share of full attention", far, streaming_heads(far, 0.5))};
}

bool is_kvzap(const ForeignFile& file) {
  return std::ranges::any_of(file.tensors, [](const auto& entry) {
    return entry.first.starts_with("layers.") && entry.first.ends_with(".weight") &&
           std::ranges::count(entry.first, '.') <= 3;
  });
}

}  // namespace

Imported import_calibration(std::span<const std::byte> bytes, const std::string& name, const Model& model) {
  if (bytes.empty()) fail("{}: is empty", name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with('{')) return import_budgets(text, name, model);
  if (!text.starts_with("PK") && (text.size() <= 8 || text[8] != '{')) return import_pattern(text, name, model);
  const ForeignFile file = read_foreign(bytes, name);
  if (file.tensors.contains("stats.layer00_head00.q_mean_real")) return import_centres(file, name, model);
  if (is_kvzap(file))
    fail(
        "{}: looks like weights of KVzap, whose input is the hidden state; policy kvzap here reads a token's key and "
        "value: make its weights with `palimpsest fit`",
        name);
  fail("{}: holds {} tensors, and none is of TriAttention (stats.layer00_head00.q_mean_real)", name,
       file.tensors.size());
}

}  // namespace palimpsest
