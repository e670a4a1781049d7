// The resident memory of this process, as the operating system counts it.
#pragma once

#include <cstddef>

namespace palimpsest {

std::size_t resident_bytes();       // now; 0 where the system does not report it
std::size_t resident_bytes_peak();  // the peak

}  // namespace palimpsest
