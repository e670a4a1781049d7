// The small inputs of a graph on one device: tensors in one buffer there, and a copy of it on the host. A step sends
// what changed since the last one: of a decode step's masks a few bytes. And results that are read back as one.
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
  // How changes are sent. kParts: neighbours together, each part as a message. kWords: where the parts are many, all
  // changed words and their places in one message, and an operator on the device that puts them there: a message to a
  // GPU takes 10 us, whatever its size.
  enum class Sending { kParts, kWords };
  static Sending sending_of(ggml_backend_t backend);

  StepBlock(ggml_backend_t backend, std::size_t max_tensors) : StepBlock(backend, max_tensors, sending_of(backend)) {}
  StepBlock(ggml_backend_t backend, std::size_t max_tensors, Sending sending);

  // A tensor of zeros, until place() without memory.
  ggml_tensor* add(ggml_type type, const std::array<std::int64_t, 4>& shape);
  ggml_tensor* add_result(ggml_type type, std::int64_t elements);
  void place();  // throws Error when the device is out of memory
  // `offset`: a multiple of 4.
  void set(const ggml_tensor* tensor, std::span<const std::byte> contents, std::size_t offset = 0);
  template <typename T>
  void set_element(const ggml_tensor* tensor, std::size_t index, T element) {
    static_assert(sizeof(T) <= 4);
    put(tensor, index * sizeof(T), &element, sizeof(T));
  }
  void send();

 private:
  struct Part {  // bytes that changed, and unchanged ones between them
    std::size_t first, end;
  };
  struct Words {  // a message of so many words, and the graph that puts them into the block
    ggml_context_ptr context;
    DeviceBuffer buffer;
    ggml_cgraph* graph = nullptr;
    ggml_tensor* message = nullptr;  // places, then words
    std::size_t count = 0;
  };
  void put(const ggml_tensor* tensor, std::size_t offset, const void* element, std::size_t bytes);
  std::vector<Part> changed_parts();
  bool send_words();  // false: the device cannot
  bool make_words(std::size_t count);

  ggml_backend_t backend_;
  Sending sending_;
  std::size_t message_;  // bytes that a message costs
  ggml_context_ptr context_;
  DeviceBuffer buffer_;
  std::vector<ggml_tensor*> tensors_, results_;
  ggml_tensor* whole_ = nullptr;
  std::vector<std::byte> copy_;        // of the inputs
  std::vector<std::int32_t> changed_;  // words that changed since they were sent
  std::vector<std::byte> message_of_words_;
  Words words_;
};

}  // namespace palimpsest
