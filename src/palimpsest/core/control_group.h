// Limits of the control groups (cgroup v1 and v2: containers, systemd, Kubernetes) that hold this process.
#pragma once

#include <cstddef>
#include <limits>
#include <string>

namespace palimpsest {

struct ControlGroupLimits {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::size_t memory = kNone;                             // bytes: the smallest limit of the group and its ancestors
  std::size_t memory_left = kNone;                        // bytes: the smallest difference of limit and usage
  double cpus = std::numeric_limits<double>::infinity();  // the smallest quota, in CPUs
};

// Reads ROOT/proc/self/cgroup, ROOT/proc/self/mountinfo and the files of the groups below ROOT; a test has a root of
// its own. What cannot be read is no limit. Usage excludes file pages that the kernel frees first (inactive_file).
ControlGroupLimits control_group_limits(const std::string& root = "");

}  // namespace palimpsest
