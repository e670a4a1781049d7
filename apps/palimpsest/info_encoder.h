// `palimpsest info` of an encoder.
#pragma once

#include <nlohmann/json.hpp>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest::cli {

nlohmann::ordered_json describe_encoder(const GgufFile& file);  // throws Error
void print_encoder(const nlohmann::ordered_json& info);

}  // namespace palimpsest::cli
