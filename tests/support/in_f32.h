#pragma once

#include <string>

namespace palimpsest::testing {

// Path of a copy of a GGUF file with every tensor in f32, in the temporary folder. Throws std::runtime_error. Made once
// per process and file, removed when the process ends.
std::string in_f32(const std::string& gguf);

}  // namespace palimpsest::testing
