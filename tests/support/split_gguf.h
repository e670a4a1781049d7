// Writes GGUF files: of given tensors, and a model split over several files.
#pragma once

#include <ggml-cpp.h>
#include <gguf.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace palimpsest::testing {

struct NewTensor {
  std::string name;
  ggml_type type;
  std::array<std::int64_t, GGML_MAX_DIMS> ne;
  const void* data;
};
void write_gguf(const gguf_context_ptr& g, const std::vector<NewTensor>& tensors, const std::string& path);

// Splits as llama-gguf-split does: all metadata in the first part, equal numbers of tensors in each. Returns the paths,
// PREFIX-00001-of-00003.gguf and so on.
std::vector<std::string> split_gguf(const std::string& whole, const std::string& prefix, int count);

}  // namespace palimpsest::testing
