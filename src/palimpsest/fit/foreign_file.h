// Tensors and texts of files that other programs write: torch.save() and safetensors. Nothing of a file is executed
// (fit/plain_pickle.h); every length is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace palimpsest {

struct ForeignTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // row-major
};

// Names are paths of dictionaries: "stats.layer00_head00.q_abs_mean"; of safetensors as they are.
struct ForeignFile {
  std::map<std::string, ForeignTensor> tensors;
  std::map<std::string, std::string> texts;  // also those of safetensors' __metadata__
};

// `name`: of the file, in errors. Throws Error: damaged, or of a kind that is not read.
ForeignFile read_foreign(std::span<const std::byte> bytes, const std::string& name);

}  // namespace palimpsest
