#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <cstring>

namespace palimpsest::testing {
namespace {

// std::uniform_int_distribution differs between libraries, so it cannot reproduce inputs.
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
      return std::uint64_t{1} << below(random, 13);
    default:
      return below(random, 100'000);
  }
}

}  // namespace

Mutator::Mutator(Bytes valid, Layout layout) : valid_(std::move(valid)), layout_(std::move(layout)) {}

Bytes Mutator::damaged(std::mt19937_64& random) const {
  Bytes bytes = valid_;
  for (std::uint64_t n = 1 + below(random, 3); n > 0; --n) damage_once(bytes, random);
  return bytes;
}

void Mutator::damage_once(Bytes& bytes, std::mt19937_64& random) const {
  if (bytes.empty()) return;
  const auto& [numbers, texts, edges, header] = layout_;
  const auto edge = [&] { return std::min(edges[below(random, edges.size())], bytes.size()); };
  const auto put = [&](std::size_t at, std::uint64_t value, std::size_t size) {
    if (at + size <= bytes.size()) std::memcpy(bytes.data() + at, &value, size);
  };
  const auto get = [&](const Layout::Field& f) {
    std::uint64_t value = 0;
    if (f.at + f.size <= bytes.size()) std::memcpy(&value, bytes.data() + f.at, f.size);
    return value;
  };
  // Most numbers of a file are in its arrays: half of the time, picks one of the first or last thirty.
  const auto field = [&](const std::vector<Layout::Field>& fields) {
    const std::size_t n = fields.size(), ends = std::min<std::size_t>(n, 30);
    if (below(random, 2) == 0) return fields[below(random, n)];
    return fields[below(random, 2) == 0 ? below(random, ends) : n - 1 - below(random, ends)];
  };
  switch (below(random, 12)) {
    case 0:  // truncate
      bytes.resize(below(random, 3) == 0 ? below(random, bytes.size()) : edge());
      break;
    case 1:  // append bytes
      bytes.resize(bytes.size() + below(random, 200), std::byte{0x41});
      break;
    case 2:  // flip bits of the header
    case 3:
      for (std::uint64_t n = 1 + below(random, 4); n > 0; --n)
        bytes[below(random, std::min(header, bytes.size()))] ^= std::byte{1} << below(random, 8);
      break;
    case 4:  // flip bits anywhere
      bytes[below(random, bytes.size())] ^= std::byte{1} << below(random, 8);
      break;
    case 5:  // replace a number
    case 6:
    case 7: {
      const Layout::Field f = field(numbers);
      put(f.at, interesting(random), f.size);
      break;
    }
    case 8: {  // change a number by a little
      const Layout::Field f = field(numbers);
      put(f.at, get(f) + below(random, 5) - 2, f.size);
      break;
    }
    case 9: {  // copy a number from another field
      const Layout::Field to = field(numbers), from = field(numbers);
      put(to.at, get(from), to.size);
      break;
    }
    case 10: {  // swap two fields that are adjacent or close
      const std::size_t i = below(random, numbers.size()), j = i + 1 + below(random, 4);
      if (j >= numbers.size()) break;
      const std::uint64_t a = get(numbers[i]), b = get(numbers[j]);
      put(numbers[i].at, b, numbers[i].size);
      put(numbers[j].at, a, numbers[j].size);
      break;
    }
    case 11: {  // overwrite a text with another one, or change a byte of it
      if (texts.empty()) break;
      const Layout::Field to = field(texts), from = field(texts);
      const std::size_t n = std::min(to.size, from.size);
      if (n == 0 || to.at + n > bytes.size() || from.at + n > bytes.size()) break;
      if (below(random, 2) == 0)
        std::memmove(bytes.data() + to.at, bytes.data() + from.at, n);
      else
        bytes[to.at + below(random, n)] = static_cast<std::byte>(random());
      break;
    }
    default: {  // delete or duplicate a piece
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
