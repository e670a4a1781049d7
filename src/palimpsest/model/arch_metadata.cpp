#include "palimpsest/model/arch_metadata.h"

#include <span>

#include "palimpsest/core/error.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

int ArchMetadata::required(std::string_view key, std::int64_t max) const {
  if (!has(key)) fail("{}: key {} is missing; convert the model again", file_.path(), name(key));
  return optional(key, 0, max);
}

int ArchMetadata::optional(std::string_view key, int fallback, std::int64_t max, std::int64_t min) const {
  const auto value = file_.integer(name(key));
  if (!value) return fallback;
  if (*value < min || *value > max)
    fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), *value, min, max);
  return static_cast<int>(*value);
}

bool ArchMetadata::is_of_layers(std::size_t size, int layers) const {
  const auto wanted = static_cast<std::size_t>(layers);
  return layers > 0 && (size == wanted || size == wanted + at(optional("nextn_predict_layers", 0, 4096, 0)));
}

std::vector<int> ArchMetadata::of_layers(std::string_view key, int layers, bool differ,
                                         std::vector<int> fallback) const {
  if (!has(key) && !fallback.empty()) return fallback;
  if (!has(key) || !file_.is_array(name(key))) return std::vector<int>(static_cast<std::size_t>(layers), required(key));
  const auto values = *file_.integers(name(key));
  if (!is_of_layers(values.size(), layers))
    fail("{}: key {} has {} values for {} layers: damaged", file_.path(), name(key), values.size(), layers);
  std::vector<int> out;
  for (const std::int64_t v : std::span(values).first(static_cast<std::size_t>(layers))) {
    if (!differ && v != values.front())
      fail("{}: key {} differs between layers, which is not supported; use another model", file_.path(), name(key));
    if (v < (differ ? 0 : 1) || v > kMax)
      fail("{}: key {} has the value {}, not within {}..{}: damaged", file_.path(), name(key), v, differ ? 0 : 1, kMax);
    out.push_back(static_cast<int>(v));
  }
  return out;
}

std::vector<int> ArchMetadata::of_layers(std::string_view key, int layers, bool differ, int fallback) const {
  if (fallback == 0) return of_layers(key, layers, differ);
  return of_layers(key, layers, differ, std::vector<int>(static_cast<std::size_t>(layers), fallback));
}

double ArchMetadata::number(std::string_view key, double fallback, double min, double max) const {
  const double value = file_.number(name(key)).value_or(fallback);
  if (!(value >= min && value <= max))
    fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), value, min, max);
  return value;
}

bool ArchMetadata::flag(std::string_view key, bool fallback) const {
  return file_.boolean(name(key)).value_or(fallback);
}

std::string ArchMetadata::text(std::string_view key, const std::string& fallback) const {
  return file_.text(name(key)).value_or(fallback);
}

std::vector<std::int32_t> ArchMetadata::windows(int layers, int window, int period) const {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const int size = optional("attention.sliding_window", window, INT32_MAX, 0);
  std::vector<std::int32_t> out(static_cast<std::size_t>(layers), INT32_MAX);
  if (size == 0) return out;
  std::vector<std::int64_t> local;  // [layers]
  if (has(kPattern) && file_.is_array(name(kPattern))) {
    local = *file_.integers(name(kPattern));
    if (!is_of_layers(local.size(), layers))
      fail("{}: key {} has {} values for {} layers: damaged", file_.path(), name(kPattern), local.size(), layers);
  } else {
    const int every = optional(kPattern, period, kMax, 1);
    for (int i = 0; i < layers; ++i) local.push_back(i % every < every - 1);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (local[i] != 0) out[i] = size;
  return out;
}

}  // namespace palimpsest
