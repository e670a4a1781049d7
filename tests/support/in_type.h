#pragma once

#include <ggml.h>

#include <string>

namespace palimpsest::testing {

// Path of a copy of a GGUF file with all matrices in a type, as far as its blocks fit, and all vectors in f32; in the
// temporary folder. Throws std::runtime_error. Made once per process, file and type, removed when the process ends.
std::string in_type(const std::string& gguf, ggml_type type);
inline std::string in_f32(const std::string& gguf) {
  return in_type(gguf, GGML_TYPE_F32);
}

}  // namespace palimpsest::testing
