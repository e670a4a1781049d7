#include "palimpsest/model/arch_metadata.h"

#include "palimpsest/core/error.h"

namespace palimpsest {

int ArchMetadata::required(std::string_view key, std::int64_t most) const {
  if (!has(key)) fail("{}: key {} is missing; convert the model again", file_.path(), name(key));
  return optional(key, 0, most);
}

int ArchMetadata::optional(std::string_view key, int otherwise, std::int64_t most, std::int64_t least) const {
  const auto value = file_.integer(name(key));
  if (!value) return otherwise;
  if (*value < least || *value > most)
    fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), *value, least, most);
  return static_cast<int>(*value);
}

int ArchMetadata::same_for_all(std::string_view key, int layers, int otherwise) const {
  if (!has(key)) return otherwise != 0 ? otherwise : required(key);
  if (!file_.is_array(name(key))) return optional(key, otherwise);
  const auto values = *file_.integers(name(key));
  if (static_cast<int>(values.size()) != layers || values.empty())
    fail("{}: key {} has {} values for {} layers: damaged", file_.path(), name(key), values.size(), layers);
  for (const std::int64_t v : values)
    if (v != values.front() || v < 1 || v > kMost)
      fail("{}: key {} differs between layers, which is not supported; use another model", file_.path(), name(key));
  return static_cast<int>(values.front());
}

double ArchMetadata::number(std::string_view key, double otherwise, double least, double most) const {
  const double value = file_.number(name(key)).value_or(otherwise);
  if (!(value >= least && value <= most))
    fail("{}: key {} is {}, not within {}..{}: damaged", file_.path(), name(key), value, least, most);
  return value;
}

bool ArchMetadata::flag(std::string_view key, bool otherwise) const {
  return file_.boolean(name(key)).value_or(otherwise);
}

std::string ArchMetadata::text(std::string_view key, const std::string& otherwise) const {
  return file_.text(name(key)).value_or(otherwise);
}

std::vector<std::int32_t> ArchMetadata::windows(int layers, int window, int period) const {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const int size = optional("attention.sliding_window", window, INT32_MAX, 0);
  std::vector<std::int32_t> out(static_cast<std::size_t>(layers), INT32_MAX);
  if (size == 0) return out;
  std::vector<std::int64_t> local;  // one for each layer
  if (has(kPattern) && file_.is_array(name(kPattern))) {
    local = *file_.integers(name(kPattern));
    if (local.size() != out.size())
      fail("{}: key {} has {} values for {} layers: damaged", file_.path(), name(kPattern), local.size(), layers);
  } else {
    const int every = optional(kPattern, period, kMost, 1);
    for (int i = 0; i < layers; ++i) local.push_back(i % every < every - 1);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (local[i] != 0) out[i] = size;
  return out;
}

}  // namespace palimpsest
