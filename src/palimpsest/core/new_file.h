// Replaces a file atomically: writes a temporary file next to it and renames it on commit, so that readers see the old
// or the new file. A killed program leaves the temporary file PATH.new.PID.N. It is locked (flock) while it is written,
// so that programs which share a folder, also over a network, can tell: the system releases the lock of a killed
// program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "palimpsest/core/checksum.h"

namespace palimpsest {

class NewFile {
 public:
  // `name`: of the file in errors; empty: its path. All functions throw Error: disk full, no permission.
  explicit NewFile(const std::string& path, const std::string& name = {});
  ~NewFile();  // without commit(): removes the temporary file
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> data);
  void commit();

  // Whether `file`'s name is that of a temporary file of any path; removes it if no program writes it.
  static bool is_temporary(const std::string& file);
  static void remove_abandoned(const std::string& file);

 private:
  [[noreturn]] void broken() const;
  std::string path_, name_, temporary_;
  int file_;
  bool done_ = false;
};

// A new file with the checksum of its bytes at its end, as ByteReader::require_checksum() expects it.
class ChecksummedFile {
 public:
  explicit ChecksummedFile(const std::string& path, const std::string& name = {}) : file_(path, name) {}
  void write(std::span<const std::byte> data);
  void commit();

 private:
  NewFile file_;
  Checksum sum_;
};

// A whole file of text, which others may read.
void write_new_file(const std::string& path, std::string_view text);

}  // namespace palimpsest
