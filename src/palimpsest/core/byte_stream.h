// Serializes numbers and arrays as bytes, in this machine's byte order, for snapshots. The reader checks every length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {

class ByteWriter {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;
  explicit ByteWriter(Sink sink) : sink_(std::move(sink)) {}

  void bytes(std::span<const std::byte> data) { sink_(data); }
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    sink_(std::as_bytes(std::span(&value, 1)));
  }
  template <typename T>
  void array(std::span<const T> values) {
    put(static_cast<std::uint64_t>(values.size()));
    sink_(std::as_bytes(values));
  }
  void text(const std::string& s) { array(std::span<const char>(s)); }

 private:
  Sink sink_;
};

class ByteReader {
 public:
  // `what` is the prefix of every Error: "session.snap is damaged".
  ByteReader(std::span<const std::byte> data, std::string what) : data_(data), what_(std::move(what)) {}

  std::span<const std::byte> bytes(std::size_t count) {
    if (count > data_.size()) damaged("ends too early");
    const auto out = data_.first(count);
    data_ = data_.subspan(count);
    return out;
  }
  template <typename T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  template <typename T>
  std::vector<T> array() {
    const auto count = get<std::uint64_t>();
    if (count > data_.size() / sizeof(T)) damaged("ends too early");
    std::vector<T> out(static_cast<std::size_t>(count));
    if (count > 0) std::memcpy(out.data(), bytes(out.size() * sizeof(T)).data(), out.size() * sizeof(T));
    return out;
  }
  std::string text() {
    const auto chars = array<char>();
    return {chars.begin(), chars.end()};
  }
  bool at_end() const { return data_.empty(); }
  std::size_t left() const { return data_.size(); }
  void require(bool holds, const char* what) const {
    if (!holds) damaged(what);
  }
  [[noreturn]] void damaged(const char* how) const { fail("{}: {}", what_, how); }

 private:
  std::span<const std::byte> data_;
  std::string what_;
};

}  // namespace palimpsest
