#include "palimpsest/core/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

std::string beside(const std::string& path) {
  static std::atomic<unsigned> count = 0;  // several threads may write the same path
  return path + ".new." + std::to_string(::getpid()) + "." + std::to_string(++count);
}

}  // namespace

NewFile::NewFile(const std::string& path)
    : path_(path),
      temporary_(beside(path)),
      file_(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
  if (file_ < 0) broken();
}

NewFile::~NewFile() {
  if (file_ >= 0) ::close(file_);
  if (!done_) ::unlink(temporary_.c_str());
}

void NewFile::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) broken();
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

void NewFile::commit() {
  if (::fsync(file_) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0) broken();
  done_ = true;
  const auto folder = std::filesystem::absolute(path_).parent_path();
  if (const int f = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); f >= 0) {
    ::fsync(f);  // make the rename durable, too
    ::close(f);
  }
}

void NewFile::broken() const {
  fail("{}: cannot be written ({}): is there room, and may this user write there?", path_, std::strerror(errno));
}

}  // namespace palimpsest
