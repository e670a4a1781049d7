#include "palimpsest/core/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace palimpsest {

// /proc/self/statm: pages of the address space, then resident pages. Exact, unlike /proc/self/status, which may lag.
std::size_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long total = 0, resident = 0;
  const int read = std::fscanf(file, "%lu %lu", &total, &resident);
  std::fclose(file);
  return read == 2 ? static_cast<std::size_t>(resident) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

namespace {

// The number at the beginning of a file; 0: there is none.
std::size_t number_in(const char* path, const char* format) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return 0;
  char line[256];
  unsigned long long value = 0;
  while (std::fgets(line, sizeof line, file) != nullptr)
    if (std::sscanf(line, format, &value) == 1) break;
  std::fclose(file);
  return value;
}

}  // namespace

std::size_t available_bytes() {
  const std::size_t machine = number_in("/proc/meminfo", "MemAvailable: %llu kB") * 1024;
  const std::size_t limit = number_in("/sys/fs/cgroup/memory.max", "%llu");  // "max": none
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current", "%llu");
  if (limit == 0 || machine == 0) return machine;
  return std::min(machine, limit - std::min(limit, used));
}

std::size_t resident_bytes_peak() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#ifdef __APPLE__
  return static_cast<std::size_t>(usage.ru_maxrss);  // in bytes on this system
#else
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
#endif
}

}  // namespace palimpsest
