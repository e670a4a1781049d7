// A file that grows until it is complete: its SHA-256 is that of the bytes so far.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "palimpsest/core/sha256.h"

namespace palimpsest {

class PartFile {
 public:
  // Goes on with the bytes that are there. All functions throw Error: disk full, no permission.
  explicit PartFile(std::filesystem::path path);
  ~PartFile();
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;

  std::uint64_t size() const { return size_; }
  std::string sha256() const { return sum_.hex(); }
  void append(std::string_view data);
  void clear();                                  // begins anew
  void rename_to(const std::filesystem::path&);  // on the disk first
  void remove();

 private:
  [[noreturn]] void broken() const;
  std::filesystem::path path_;
  int file_;
  std::uint64_t size_ = 0;
  Sha256 sum_;
};

}  // namespace palimpsest
