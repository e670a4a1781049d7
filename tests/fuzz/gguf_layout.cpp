#include "tests/fuzz/gguf_layout.h"

#include <gguf.h>

#include <cstring>

namespace palimpsest::testing {

Layout gguf_layout(const Bytes& valid) {
  Layout layout;
  std::size_t at = 4;
  const auto number = [&](std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, valid.data() + at, size);
    layout.numbers.push_back({at, size});
    layout.edges.push_back(at);
    at += size;
    return value;
  };
  const auto string = [&] {
    const std::uint64_t length = number(8);
    layout.texts.push_back({at, static_cast<std::size_t>(length)});
    at += static_cast<std::size_t>(length);
  };
  const auto scalar = [&](std::uint64_t type) {
    static constexpr std::size_t kBytes[GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    number(kBytes[type]);
  };
  number(4);
  const std::uint64_t tensors = number(8), keys = number(8);
  for (std::uint64_t k = 0; k < keys; ++k) {
    string();
    const std::uint64_t type = number(4);
    if (type == GGUF_TYPE_STRING) {
      string();
    } else if (type == GGUF_TYPE_ARRAY) {
      const std::uint64_t element = number(4), count = number(8);
      for (std::uint64_t i = 0; i < count; ++i) element == GGUF_TYPE_STRING ? string() : scalar(element);
    } else {
      scalar(type);
    }
  }
  for (std::uint64_t t = 0; t < tensors; ++t) {
    string();
    const std::uint64_t dims = number(4);
    for (std::uint64_t d = 0; d < dims; ++d) number(8);
    number(4);
    number(8);
  }
  layout.header = at;
  layout.edges.push_back(at);
  return layout;
}

}  // namespace palimpsest::testing
