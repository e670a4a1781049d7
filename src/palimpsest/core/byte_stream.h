// Serializes numbers and arrays as bytes, in this machine's byte order, for snapshots. The reader checks every length.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "palimpsest/core/checksum.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/regular_file.h"

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
  // Reads a file whose last 8 bytes are the checksum of all before, in parts, when they are wanted. Throws Error for a
  // part that does not exist any more.
  ByteReader(std::shared_ptr<const RegularFile> file, std::string what)
      : file_(std::move(file)), unread_(file_->size()), what_(std::move(what)) {}

  // If it reads a file: valid until the next call.
  std::span<const std::byte> bytes(std::size_t count) {
    if (count > left()) damaged("ends too early");
    if (count > data_.size()) fill(count);
    const auto out = data_.first(count);
    data_ = data_.subspan(count);
    if (file_ != nullptr) sum_.add(out);
    return out;
  }
  void skip(std::size_t count) {
    for (std::size_t part = 0; count > 0; count -= part) bytes(part = std::min(count, kPart));
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
    if (count > left() / sizeof(T)) damaged("ends too early");
    std::vector<T> out(static_cast<std::size_t>(count));
    for (auto to = std::as_writable_bytes(std::span(out)); !to.empty();) {
      const auto part = bytes(std::min(to.size(), kPart));
      std::memcpy(to.data(), part.data(), part.size());
      to = to.subspan(part.size());
    }
    return out;
  }
  std::string text() {
    const auto chars = array<char>();
    return {chars.begin(), chars.end()};
  }
  bool at_end() const { return left() == 0; }
  std::size_t left() const { return data_.size() + unread_; }
  // If it reads a file: forgets what was read in advance, which is read again when it is wanted.
  void release() {
    unread_ += data_.size();
    data_ = {};
    buffer_.reset();
  }
  // Throws Error unless only the checksum follows, and it is that of the bytes that this reader has passed.
  // Requires: it reads a file.
  void require_checksum() {
    const std::uint64_t sum = sum_.value();
    require(left() == sizeof sum, "there is something after its end");
    require(get<std::uint64_t>() == sum, "its checksum is wrong: truncated or changed; use another copy");
  }
  void require(bool holds, const char* what) const {
    if (!holds) damaged(what);
  }
  [[noreturn]] void damaged(const char* how) const { fail("{}: {}", what_, how); }

 private:
  static constexpr std::size_t kPart = std::size_t{1} << 16;

  // Makes data_ at least `count` bytes. Copies of the reader share the buffer, which does not change.
  void fill(std::size_t count) {
    const std::size_t more = std::min(unread_, std::max(count - data_.size(), kPart));
    auto buffer = std::make_shared<std::vector<std::byte>>(data_.size() + more);
    std::ranges::copy(data_, buffer->begin());
    file_->read(file_->size() - unread_, std::span(*buffer).subspan(data_.size()));
    unread_ -= more;
    data_ = *buffer;
    buffer_ = std::move(buffer);
  }

  std::span<const std::byte> data_;  // in memory, next
  std::shared_ptr<const RegularFile> file_;
  std::shared_ptr<const std::vector<std::byte>> buffer_;  // has data_, if there is a file
  std::size_t unread_ = 0;                                // bytes of the file after data_
  Checksum sum_;                                          // of the bytes that were passed, if there is a file
  std::string what_;
};

}  // namespace palimpsest
