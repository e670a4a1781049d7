// The models of a folder, and the pulled ones, by name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace palimpsest {

struct ModelInFolder {
  std::string name;
  std::filesystem::path path;
  std::uintmax_t bytes = 0;  // of the file
};

// The GGUF files in `folder`, named without .gguf, and the folders in it that have one, named like the folder; of a
// model in parts the first. And the pulled models. By name; what is in the folder comes before a pulled model of its
// name.
std::vector<ModelInFolder> models_in(const std::filesystem::path& folder);

}  // namespace palimpsest
