#include "palimpsest/model/fingerprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>

#include "palimpsest/core/checksum.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

std::uint64_t fingerprint(const Model& model) {
  const GgufFile& file = model.weights().file;
  Checksum sum;
  for (const GgufTensor& t : file.tensors()) {
    sum.add(std::as_bytes(std::span(t.name)));
    sum.add(std::as_bytes(std::span(t.ne)));
    sum.add({t.data, std::min<std::size_t>(t.bytes, 64)});
  }
  return sum.value();
}

std::uint64_t cache_fingerprint(const Model& model) {
  const std::string prefix = model.hyper().architecture + ".";
  std::string text;
  for (const GgufOverride& each : model.options().overrides) {
    if (!each.key.starts_with(prefix)) continue;
    text += std::visit([&](const auto& value) { return fmt::format("{}={};", each.key, value); }, each.value);
  }
  const std::uint64_t whole = fingerprint(model);
  if (text.empty()) return whole;
  Checksum sum;
  sum.add(std::as_bytes(std::span(&whole, 1)));
  sum.add(std::as_bytes(std::span(text)));
  return sum.value();
}

}  // namespace palimpsest
