#pragma once

#include <string>

namespace palimpsest::testing {

// A copy of a GGUF file with every tensor in f32, in the folder for temporary files; its path. Throws
// std::runtime_error. Made once a process for each file, removed when the process ends.
std::string in_f32(const std::string& gguf);

}  // namespace palimpsest::testing
