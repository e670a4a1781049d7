#include "palimpsest/info_encoder.h"

#include <fmt/format.h>

#include <string>

#include "palimpsest/info_parts.h"
#include "palimpsest/model/encoder_file.h"
#include "palimpsest/progress.h"

namespace palimpsest::cli {

using Json = nlohmann::ordered_json;

Json describe_encoder(const GgufFile& file) {
  const EncoderFile encoder = read_encoder(file);
  const bool ranks = encoder.pooling == EncoderPooling::kRank;
  return {{"model", file.path()},
          {"name", encoder.name},
          {"architecture", encoder.architecture},
          {"encoder", true},
          {"parameters", encoder.parameters},
          {"weight_bytes", encoder.weight_bytes},
          {"layers", encoder.layers},
          {"width", encoder.width},
          {"heads", encoder.heads},
          {"trained_context", encoder.context},
          {"pooling", name_of(encoder.pooling)},
          {"endpoints", ranks ? Json{"/v1/rerank"} : Json{"/v1/embeddings", "/v1/rerank"}},
          {"vocabulary", vocabulary_of(file.path(), {})},
          {"tensors", tensors_of(file)}};
}

void print_encoder(const Json& info) {
  const auto number = [&](const char* key) { return info[key].get<long long>(); };
  print_info("model", info["model"]);
  if (!info["name"].get<std::string>().empty()) print_info("name", info["name"]);
  print_info("architecture", info["architecture"].get<std::string>() + ", an encoder: it writes no text");
  print_weights(info);
  print_info("shape", fmt::format("{} layers, width {}, {} heads", number("layers"), number("width"), number("heads")));
  print_info("trained context", thousands(number("trained_context")));
  print_info("pooling", info["pooling"]);
  std::string endpoints;
  for (const Json& each : info["endpoints"]) endpoints += (endpoints.empty() ? "" : " and ") + each.get<std::string>();
  print_info("serve answers", endpoints);
  print_vocabulary(info["vocabulary"]);
  print_tensors(info["tensors"]);
}

}  // namespace palimpsest::cli
