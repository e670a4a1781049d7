// How many threads can run at the same time.
#pragma once

#include <string>

namespace palimpsest {

// The CPUs that this process may use (its affinity), at most as many as the quota of its control groups pays for,
// rounded up; at least 1. `root`: of the file system; a test has its own.
int usable_cpus(const std::string& root = "");

}  // namespace palimpsest
