// The small inputs of a graph on one device: tensors in one buffer there, and a copy of it on the host. A step sends
// what changed since the last one, neighbours together: of a decode step's masks a few bytes, and few messages. And
// results that are read back as one.
#pragma once

#include <ggml-cpp.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "palimpsest/model/backend.h"

namespace palimpsest {

class StepBlock {
 public:
  StepBlock(ggml_backend_t backend, std::size_t max_tensors);

  // A tensor of zeros, until place() without memory.
  ggml_tensor* add(ggml_type type, const std::array<std::int64_t, 4>& shape);
  ggml_tensor* add_result(ggml_type type, std::int64_t elements);
  void place();  // throws Error when the device is out of memory
  void set(const ggml_tensor* tensor, std::span<const std::byte> contents, std::size_t offset = 0);
  void send();

 private:
  ggml_backend_t backend_;
  ggml_context_ptr context_;
  DeviceBuffer buffer_;
  std::vector<ggml_tensor*> tensors_, results_;
  ggml_tensor* whole_ = nullptr;
  std::vector<std::byte> now_, sent_;
};

}  // namespace palimpsest
