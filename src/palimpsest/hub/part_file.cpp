#include "palimpsest/hub/part_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {

PartFile::PartFile(std::filesystem::path path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (file_ < 0) broken();
  std::vector<char> bytes(std::size_t{1} << 20);
  for (;;) {
    const ssize_t got = ::read(file_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) broken();
    if (got == 0) return;
    sum_.add({bytes.data(), static_cast<std::size_t>(got)});
    size_ += static_cast<std::uint64_t>(got);
  }
}

PartFile::~PartFile() {
  if (file_ >= 0) ::close(file_);
}

void PartFile::append(std::string_view data) {
  while (!data.empty()) {
    const ssize_t written = ::write(file_, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) broken();
    const auto count = static_cast<std::size_t>(written);
    sum_.add(data.substr(0, count));
    size_ += count;
    data.remove_prefix(count);
  }
}

void PartFile::clear() {
  if (::ftruncate(file_, 0) != 0 || ::lseek(file_, 0, SEEK_SET) != 0) broken();
  sum_ = {};
  size_ = 0;
}

void PartFile::rename_to(const std::filesystem::path& to) {
  if (::fsync(file_) != 0 || ::rename(path_.c_str(), to.c_str()) != 0) broken();
}

void PartFile::remove() {
  ::unlink(path_.c_str());
}

void PartFile::broken() const {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  fail("{}: {}: {}", path_.string(), std::strerror(error),
       full ? "free some space, or set PALIMPSEST_MODELS to a folder on another disk; what has arrived stays, and "
              "pulling again goes on from there"
            : "set PALIMPSEST_MODELS to a folder that you may write");
}

}  // namespace palimpsest
