// Paths of the default model, used when -m is not given.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace palimpsest::cli {

inline constexpr const char* kDefaultModel = "palimpsest-stories.gguf";

std::filesystem::path this_program();  // empty: unknown

// In this order: in the repository beside a build folder, then below an installation's prefix.
std::vector<std::filesystem::path> default_model_places();
std::optional<std::filesystem::path> default_model();  // the first of them that exists

}  // namespace palimpsest::cli
