// What this process holds of the machine's memory, as the operating system counts it.
#pragma once

#include <cstddef>

namespace palimpsest {

std::size_t resident_bytes();       // now; 0 where the system does not say
std::size_t resident_bytes_peak();  // the most ever

}  // namespace palimpsest
