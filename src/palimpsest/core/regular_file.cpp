#include "palimpsest/core/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "palimpsest/core/error.h"

namespace palimpsest {

RegularFile::RegularFile(const std::string& path, const char* what, const std::string& name)
    : name_(name.empty() ? path : name), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_ < 0) fail("{}: cannot be opened ({}); give the path of {}", name_, std::strerror(errno), what);
  try {
    struct stat info {};
    if (::fstat(file_, &info) != 0) fail("{}: cannot be examined ({})", name_, std::strerror(errno));
    if (!S_ISREG(info.st_mode)) fail("{}: is not a regular file; give the path of {}", name_, what);
    if (info.st_size == 0) fail("{}: is empty; give the path of {}", name_, what);
    size_ = static_cast<std::size_t>(info.st_size);
  } catch (...) {
    ::close(file_);
    throw;
  }
}

RegularFile::~RegularFile() {
  ::close(file_);
}

void RegularFile::read(std::size_t offset, std::span<std::byte> to) const {
  constexpr std::size_t kMax = std::size_t{1} << 30;  // of one call: Linux reads no more
  while (!to.empty()) {
    const ssize_t count = ::pread(file_, to.data(), std::min(to.size(), kMax), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("{}: cannot be read ({})", name_, std::strerror(errno));
    if (count == 0) fail("{}: became shorter while it was read; use an older copy", name_);
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::size_t>(count);
  }
}

}  // namespace palimpsest
