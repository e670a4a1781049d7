#include "tests/fuzz/gguf_mutator.h"

#include <gguf.h>

#include <algorithm>
#include <cstring>

namespace palimpsest::testing {
namespace {

// std::uniform_int_distribution differs between libraries; a reproducer must not.
std::uint64_t below(std::mt19937_64& random, std::uint64_t n) {
  return n == 0 ? 0 : random() % n;
}

std::uint64_t interesting(std::mt19937_64& random) {
  switch (below(random, 6)) {
    case 0:
      return below(random, 70);
    case 1:
      return ~std::uint64_t{0} - below(random, 3);
    case 2:
      return (std::uint64_t{1} << below(random, 64)) + below(random, 3) - 1;
    case 3:
      return random();
    case 4:
      return std::uint64_t{1} << below(random, 12);
    default:
      return below(random, 100'000);
  }
}

}  // namespace

GgufMutator::GgufMutator(Bytes valid) : valid_(std::move(valid)) {
  find_fields();
}

void GgufMutator::find_fields() {
  std::size_t at = 4;
  const auto number = [&](std::size_t size) {
    std::uint64_t value = 0;
    std::memcpy(&value, valid_.data() + at, size);
    numbers_.push_back({at, size});
    edges_.push_back(at);
    at += size;
    return value;
  };
  const auto string = [&] {
    const std::uint64_t length = number(8);
    texts_.push_back({at, static_cast<std::size_t>(length)});
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
  header_ = at;
  edges_.push_back(at);
}

Bytes GgufMutator::damaged(std::mt19937_64& random) const {
  Bytes bytes = valid_;
  for (std::uint64_t n = 1 + below(random, 3); n > 0; --n) damage_once(bytes, random);
  return bytes;
}

void GgufMutator::damage_once(Bytes& bytes, std::mt19937_64& random) const {
  if (bytes.empty()) return;
  const auto edge = [&] { return std::min(edges_[below(random, edges_.size())], bytes.size()); };
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    if (at + size <= bytes.size()) std::memcpy(bytes.data() + at, &value, size);
  };
  // Most numbers of a file are in its arrays of tokens: half of the time one of the first and last thirty is taken.
  const auto field = [&](const std::vector<Field>& fields) {
    const std::size_t n = fields.size(), ends = std::min<std::size_t>(n, 30);
    if (below(random, 2) == 0) return fields[below(random, n)];
    return fields[below(random, 2) == 0 ? below(random, ends) : n - 1 - below(random, ends)];
  };
  switch (below(random, 12)) {
    case 0:  // cut off
      bytes.resize(below(random, 3) == 0 ? below(random, bytes.size()) : edge());
      break;
    case 1:  // something behind the end
      bytes.resize(bytes.size() + below(random, 200), std::byte{0x41});
      break;
    case 2:  // bits of the header flip
    case 3:
      for (std::uint64_t n = 1 + below(random, 4); n > 0; --n)
        bytes[below(random, std::min(header_, bytes.size()))] ^= std::byte{1} << below(random, 8);
      break;
    case 4:  // bits anywhere
      bytes[below(random, bytes.size())] ^= std::byte{1} << below(random, 8);
      break;
    case 5:  // a number lies
    case 6:
    case 7: {
      const Field f = field(numbers_);
      put(f.at, interesting(random), f.size);
      break;
    }
    case 8: {  // a number is off by a little
      const Field f = field(numbers_);
      if (f.at + f.size > bytes.size()) break;
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + f.at, f.size);
      put(f.at, value + below(random, 5) - 2, f.size);
      break;
    }
    case 9: {  // a number is another one's
      const Field to = field(numbers_), from = field(numbers_);
      if (from.at + 8 > bytes.size()) break;
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data() + from.at, from.size);
      put(to.at, value, to.size);
      break;
    }
    case 10: {  // a text is another one's, as far as it reaches; or some byte of it
      const Field to = field(texts_), from = field(texts_);
      const std::size_t n = std::min(to.size, from.size);
      if (n == 0 || to.at + n > bytes.size() || from.at + n > bytes.size()) break;
      if (below(random, 2) == 0)
        std::memmove(bytes.data() + to.at, bytes.data() + from.at, n);
      else
        bytes[to.at + below(random, n)] = static_cast<std::byte>(random());
      break;
    }
    default: {  // a piece is lost, or there twice
      std::size_t first = edge(), last = edge();
      if (first > last) std::swap(first, last);
      last = std::min(last, first + 400);
      const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(last);
      if (below(random, 2) == 0) {
        bytes.erase(begin, end);
      } else {
        const Bytes piece(begin, end);
        bytes.insert(end, piece.begin(), piece.end());
      }
    }
  }
}

}  // namespace palimpsest::testing
