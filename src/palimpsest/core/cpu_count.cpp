#include "palimpsest/core/cpu_count.h"

#include <algorithm>
#include <cmath>
#include <thread>

#include "palimpsest/core/control_group.h"

namespace palimpsest {

int usable_cpus(const std::string& root) {
  const double cores = std::max(1U, std::thread::hardware_concurrency());
  return static_cast<int>(std::max(1.0, std::min(cores, std::ceil(control_group_limits(root).cpus))));
}

}  // namespace palimpsest
