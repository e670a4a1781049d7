// A file beside the one that is meant, which takes its place when it is whole: whoever reads finds the old one or the
// new one, even if this program is killed on the way. Then the file beside it is left behind: PATH.new.PID.N.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace palimpsest {

class NewFile {
 public:
  explicit NewFile(const std::string& path);  // this and what follows throw Error: no room, not allowed
  ~NewFile();                                 // without commit(): nothing has happened
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> data);
  void commit();

 private:
  [[noreturn]] void broken() const;
  std::string path_, beside_;
  int file_;
  bool done_ = false;
};

}  // namespace palimpsest
