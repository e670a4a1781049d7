#include "palimpsest/core/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "palimpsest/core/control_group.h"

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

std::size_t memory_bytes(const std::string& root) {
  const std::size_t machine =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, control_group_limits(root).memory);
}

std::size_t available_bytes(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string line;
  std::size_t machine = 0;  // "MemAvailable:   1234 kB"
  while (machine == 0 && std::getline(file, line))
    if (unsigned long long kib = 0; std::sscanf(line.c_str(), "MemAvailable: %llu kB", &kib) == 1) machine = kib * 1024;
  return std::min(machine, control_group_limits(root).memory_left);
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
