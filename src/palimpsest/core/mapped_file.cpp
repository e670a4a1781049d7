#include "palimpsest/core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {

namespace {

struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::string& path, const char* what) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) fail("{}: cannot be opened ({}); give the path of {}", path, std::strerror(errno), what);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) fail("{}: cannot be examined ({})", path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail("{}: is not a regular file; give the path of {}", path, what);
  if (info.st_size == 0) fail("{}: is empty; give the path of {}", path, what);
  const auto size = static_cast<std::size_t>(info.st_size);
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.fd, 0);
  if (at == MAP_FAILED) fail("{}: cannot be mapped into memory ({})", path, std::strerror(errno));
  data_ = static_cast<const std::byte*>(at);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace palimpsest
