#include "palimpsest/info_parts.h"

#include <fmt/format.h>

#include <map>

#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::cli {

using Json = nlohmann::ordered_json;

Json tensors_of(const GgufFile& file) {
  struct Sum {
    std::size_t count = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const GgufTensor& tensor : file.tensors()) {
    Sum& sum = sums[ggml_type_name(tensor.type)];
    ++sum.count;
    sum.bytes += tensor.bytes;
  }
  Json out = Json::array();
  for (const auto& [type, sum] : sums) out.push_back({{"type", type}, {"count", sum.count}, {"bytes", sum.bytes}});
  return out;
}

Json vocabulary_of(const std::string& path, std::span<const GgufOverride> overrides) {
  const auto vocabulary = Vocabulary::load(path, overrides);
  return {{"kind", vocabulary->kind()},
          {"tokens", vocabulary->size()},
          {"bos", vocabulary->bos()},
          {"eos", vocabulary->eos()},
          {"chat_template", vocabulary->has_chat_template()}};
}

void print_info(const char* name, const std::string& value) {
  fmt::print("{:18}{}\n", name, value);
}

void print_vocabulary(const Json& v) {
  print_info("vocabulary", v.is_null()
                               ? "none (synthetic)"
                               : fmt::format("{} tokens, {}, {} chat template", thousands(v["tokens"].get<int>()),
                                             v["kind"].get<std::string>(), v["chat_template"] ? "with" : "no"));
}

void print_tensors(const Json& tensors) {
  for (const Json& t : tensors)
    print_info(&t == &tensors.front() ? "tensors" : "",
               fmt::format("{:6} {:4} tensors, {}", t["type"].get<std::string>(), t["count"].get<int>(),
                           human_bytes(t["bytes"].get<std::size_t>())));
}

void print_weights(const Json& info) {
  print_info("parameters", fmt::format("{} ({})", thousands(info["parameters"].get<long long>()),
                                       human_bytes(info["weight_bytes"].get<std::size_t>())));
}

}  // namespace palimpsest::cli
