// A regular file whose bytes are copied (pread), not mapped: if another process truncates it while it is read, that is
// an Error instead of SIGBUS. The file stays open, so that it may be replaced or removed meanwhile.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace palimpsest {

class RegularFile {
 public:
  // Opens without waiting: FIFOs and devices are refused. `what`: the expected kind of file, for errors: "a GGUF file".
  // `name`: of the file in errors; empty: its path. Throws Error: no such file, not a regular file, not readable,
  // empty.
  RegularFile(const std::string& path, const char* what, const std::string& name = {});
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  std::size_t size() const { return size_; }  // when it was opened
  int descriptor() const { return file_; }
  // Fills `to` with the bytes from `offset` on. Thread-safe. Throws Error if the file has fewer.
  void read(std::size_t offset, std::span<std::byte> to) const;

 private:
  std::string name_;
  int file_ = -1;
  std::size_t size_ = 0;
};

}  // namespace palimpsest
