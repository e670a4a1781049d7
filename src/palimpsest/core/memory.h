// Memory of this process, and what the machine has for it, as the operating system counts it.
#pragma once

#include <cstddef>
#include <string>

namespace palimpsest {

std::size_t resident_bytes();       // now; 0 where the system does not report it
std::size_t resident_bytes_peak();  // the peak
// The memory of this machine, or the smallest limit of the process's control groups (core/control_group.h). `root`: of
// the file system; a test has its own.
std::size_t memory_bytes(const std::string& root = "");
// Memory that new programs can use without swapping, on this machine and inside those limits; 0 where the system does
// not report it.
std::size_t available_bytes(const std::string& root = "");

}  // namespace palimpsest
