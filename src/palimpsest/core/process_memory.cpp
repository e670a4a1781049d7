#include "palimpsest/core/process_memory.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace palimpsest {

std::int64_t resident_bytes() {
  // "size resident shared ...", in pages (proc(5)).
  char text[128] = {};
  const int file = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const auto length = ::read(file, text, sizeof text - 1);
  ::close(file);
  const char* second = length > 0 ? std::strchr(text, ' ') : nullptr;
  return second == nullptr ? 0 : std::strtoll(second + 1, nullptr, 10) * ::sysconf(_SC_PAGESIZE);
}

std::int64_t resident_bytes_peak() {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return usage.ru_maxrss;
#else
  return usage.ru_maxrss * std::int64_t{1024};
#endif
}

}  // namespace palimpsest
