// What `palimpsest info` tells of any file: its vocabulary and its tensors.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/gguf_override.h"

namespace palimpsest::cli {

nlohmann::ordered_json tensors_of(const GgufFile& file);  // count and bytes by type
nlohmann::ordered_json vocabulary_of(const std::string& path, std::span<const GgufOverride> overrides);

void print_info(const char* name, const std::string& value);  // a line
void print_vocabulary(const nlohmann::ordered_json& vocabulary);
void print_tensors(const nlohmann::ordered_json& tensors);
void print_weights(const nlohmann::ordered_json& info);  // of "parameters" and "weight_bytes"

}  // namespace palimpsest::cli
