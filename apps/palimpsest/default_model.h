// Where the model lies that is used when none is named.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace palimpsest::cli {

inline constexpr const char* kDefaultModel = "palimpsest-stories.gguf";

std::filesystem::path this_program();  // empty: the system does not say

// In this order: beside a build folder (the repository), below an installation's prefix.
std::vector<std::filesystem::path> default_model_places();
std::optional<std::filesystem::path> default_model();  // the first place where the file is

}  // namespace palimpsest::cli
