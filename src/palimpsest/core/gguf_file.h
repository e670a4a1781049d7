// A GGUF file. Every length, count, type and offset is checked against the file's bytes before use, so that a
// truncated, corrupted or malicious file causes an Error and nothing else.
//
//   "GGUF" version tensors keys | key: type value ... | tensor: name dims type offset ... | padding | tensor data
#pragma once

#include <ggml.h>
#include <gguf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/mapped_file.h"

namespace palimpsest {

struct GgufTensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  std::array<std::int64_t, GGML_MAX_DIMS> ne{1, 1, 1, 1};
  const std::byte* data = nullptr;  // inside the file
  std::size_t bytes = 0;
  int part = 0;  // of a split model; -1: replaced, in memory
};

// Text from a file, made printable and short for messages.
std::string printable(std::string_view text);

struct GgufOverride;  // core/gguf_override.h

class GgufFile {
 public:
  // Opens all parts of a split model (NAME-00001-of-00003.gguf). Throws Error.
  static GgufFile open(const std::string& path);
  // The same for bytes in memory, owned by `keep` or, if null, by the caller; `name` replaces the path.
  static GgufFile parse(std::span<const std::byte> bytes, const std::string& name,
                        std::shared_ptr<const void> keep = nullptr);

  const std::string& path() const { return path_; }
  int parts() const { return static_cast<int>(parts_.size()); }
  std::span<const std::byte> bytes(int part = 0) const { return parts_[static_cast<std::size_t>(part)]; }

  // Metadata. nullopt if the key is absent; Error if it has another type.
  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  bool is_array(std::string_view key) const;
  std::optional<std::int64_t> integer(std::string_view key) const;  // any integer type, if the value fits
  std::optional<double> number(std::string_view key) const;         // a floating-point type, or an integer
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;  // of integers or booleans
  std::optional<std::vector<double>> numbers(std::string_view key) const;
  std::optional<std::vector<std::string_view>> texts(std::string_view key) const;  // of strings; views into the file
  std::size_t array_size(std::string_view key) const;                              // 0 if absent; Error if not an array
  std::vector<std::string_view> keys() const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  const GgufTensor* find(std::string_view name) const;  // nullptr if absent
  // The tensor was copied and will not be read again: the system may drop its pages from memory (a read of the mapped
  // file would load them again).
  void discard_pages(const GgufTensor& tensor) const;

  void override_value(const GgufOverride& given);  // replaces or adds a metadata value
  // Replaces the data of an existing tensor, not its shape.
  void replace(std::string_view name, ggml_type type, std::shared_ptr<const std::byte> data, std::size_t bytes);

 private:
  struct Value {
    gguf_type type = GGUF_TYPE_UINT8, element = GGUF_TYPE_UINT8;
    std::uint64_t count = 0;          // array elements
    const std::byte* data = nullptr;  // first byte of the value, of a string's text, of an array's elements
    std::uint64_t length = 0;         // of a string
  };
  class Reader;
  static GgufFile open_one(const std::string& path);
  void read();
  void add_part(GgufFile part);
  void refuse_overlap() const;  // between tensors' bytes
  const Value* value(std::string_view key) const;
  [[noreturn]] void mistyped(std::string_view key, const Value& v, const char* wanted) const;

  std::string path_;
  std::vector<MappedFile> files_;  // of the parts, or none: bytes in memory
  std::vector<std::span<const std::byte>> parts_;
  std::vector<std::shared_ptr<const void>> kept_;
  bool owned_ = false;  // the caller does not own the bytes
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
};

}  // namespace palimpsest
