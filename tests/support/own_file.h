// Tests run in parallel, each in its own process, so the files of one must not be visible to another.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace palimpsest::testing {

// A folder of the running process, removed at its end.
class OwnFolder {
 public:
  OwnFolder() : process_(::getpid()), path_(::testing::TempDir() + "palimpsest-" + std::to_string(process_)) {
    std::filesystem::create_directories(path_);
  }
  ~OwnFolder() {
    std::error_code error;
    if (::getpid() == process_) std::filesystem::remove_all(path_, error);  // not at the end of a child
  }
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  pid_t process_;
  std::string path_;
};

// A path in the temporary folder that only this process uses.
inline std::string own_file(const std::string& name) {
  static const OwnFolder folder;
  return folder.path() + "/" + name;
}

}  // namespace palimpsest::testing
