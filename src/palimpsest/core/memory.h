// Memory of this process and of the machine, as the operating system counts it.
#pragma once

#include <cstddef>

namespace palimpsest {

std::size_t resident_bytes();       // now; 0 where the system does not report it
std::size_t resident_bytes_peak();  // the peak
// That new programs can use without swapping, inside the limit of the process's control group (cgroup 2, as of
// containers); 0 where the system does not report it.
std::size_t available_bytes();

}  // namespace palimpsest
