// A whole file, mapped read-only: for files that nobody truncates meanwhile, as models. Others: core/regular_file.h.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace palimpsest {

class MappedFile {
 public:
  MappedFile() = default;
  // `what`: the expected kind of file, for errors: "a GGUF file". Throws Error: no such file, a directory, not
  // readable, empty.
  MappedFile(const std::string& path, const char* what);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace palimpsest
