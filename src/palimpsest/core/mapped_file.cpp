#include "palimpsest/core/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/core/regular_file.h"

namespace palimpsest {

MappedFile::MappedFile(const std::string& path, const char* what) {
  const RegularFile file(path, what);
  const std::size_t size = file.size();
  void* at = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor(), 0);
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
