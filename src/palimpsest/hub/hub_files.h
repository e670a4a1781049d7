// Which files of a repository are the model that a name asks for. The rules are llama.cpp's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct HubFile {
  std::string path;  // in the repository
  std::uint64_t size = 0;
  std::string sha256;

  std::string_view file_name() const { return std::string_view(path).substr(path.rfind('/') + 1); }
};

// All parts of the model, in order; empty: the repository has no such model. `tag`: a quantisation in any case, or a
// file's name; empty: Q4_K_M, else Q8_0, else the first model. Projectors (mmproj), importance matrices and files with
// names that are not safe are not models.
std::vector<HubFile> choose_files(const std::vector<HubFile>& files, std::string_view tag);

// What can be asked for: "Q4_K_M", "Q8_0"; of models without a quantisation in their names, the file.
std::vector<std::string> tags_of(const std::vector<HubFile>& files);

// The tag of one file.
std::string tag_of(std::string_view file_name);

}  // namespace palimpsest
