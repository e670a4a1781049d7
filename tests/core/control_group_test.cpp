// Control groups: trees of files as Linux shows them, in folders of the tests.
#include "palimpsest/core/control_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "palimpsest/core/cpu_count.h"
#include "palimpsest/core/memory.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr const char* kMountV2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

class ControlGroup : public ::testing::Test {
 protected:
  ~ControlGroup() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void put_memory(const std::string& group, const std::string& limit, std::size_t used, std::size_t files = 0) {
    put(group + "/memory.max", limit + "\n");
    put(group + "/memory.current", std::to_string(used) + "\n");
    put(group + "/memory.stat", "anon 1\ninactive_file " + std::to_string(files) + "\nactive_file 7\n");
  }
  void put_memory_v1(const std::string& group, std::size_t limit, std::size_t used, std::size_t files = 0) {
    put(group + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    put(group + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    put(group + "/memory.stat", "inactive_file 5\ntotal_inactive_file " + std::to_string(files) + "\n");
  }
  ControlGroupLimits limits() const { return control_group_limits(root_); }

  const std::string root_ = own_file("groups");
};

TEST_F(ControlGroup, ASystemWithoutGroupsHasNoLimit) {
  const ControlGroupLimits none = limits();
  EXPECT_EQ(none.memory, ControlGroupLimits::kNone);
  EXPECT_EQ(none.memory_left, ControlGroupLimits::kNone);
  EXPECT_TRUE(std::isinf(none.cpus));
  EXPECT_EQ(usable_cpus(root_), usable_cpus());
}

// systemd: a service in a slice. The service has no limit; the slice has one, and the outermost group another.
TEST_F(ControlGroup, Version2HonoursTheLimitOfEachAncestor) {
  put("/proc/self/cgroup", "0::/work.slice/model.service\n");
  put("/proc/self/mountinfo", kMountV2);
  put_memory("/sys/fs/cgroup/work.slice/model.service", "max", 10 * kMiB);
  put_memory("/sys/fs/cgroup/work.slice", std::to_string(100 * kMiB), 30 * kMiB, 5 * kMiB);
  put_memory("/sys/fs/cgroup", std::to_string(400 * kMiB), 350 * kMiB);
  put("/sys/fs/cgroup/work.slice/model.service/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/work.slice/cpu.max", "50000 100000\n");
  EXPECT_EQ(limits().memory, 100 * kMiB);
  EXPECT_EQ(limits().memory_left, 50 * kMiB);  // of the outermost: the slice would have 75
  EXPECT_EQ(limits().cpus, 0.5);
  EXPECT_EQ(usable_cpus(root_), 1);
}

// Docker and Kubernetes with a namespace of groups: the container's group is the root that it sees.
TEST_F(ControlGroup, Version2InAContainer) {
  put("/proc/self/cgroup", "0::/\n");
  put("/proc/self/mountinfo", kMountV2);
  put_memory("/sys/fs/cgroup", std::to_string(64 * kMiB), 16 * kMiB, 6 * kMiB);
  put("/proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 524288 kB\n");
  EXPECT_EQ(memory_bytes(root_), 64 * kMiB);
  EXPECT_EQ(available_bytes(root_), 54 * kMiB);
  put_memory("/sys/fs/cgroup", "max", 16 * kMiB);
  EXPECT_EQ(available_bytes(root_), 512 * kMiB);
  EXPECT_EQ(memory_bytes(root_), memory_bytes());
}

TEST_F(ControlGroup, Version1HonoursTheLimitOfEachAncestor) {
  put("/proc/self/cgroup", "4:memory:/jobs/7\n3:cpu,cpuacct:/jobs\n0::/\n");
  put("/proc/self/mountinfo",
      "31 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "32 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "33 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put_memory_v1("/sys/fs/cgroup/memory/jobs/7", 200 * kMiB, 20 * kMiB);
  put_memory_v1("/sys/fs/cgroup/memory/jobs", 100 * kMiB, 60 * kMiB, 10 * kMiB);
  put_memory_v1("/sys/fs/cgroup/memory", 9223372036854771712U, 900 * kMiB);
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us", "150000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us", "100000\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().memory, 100 * kMiB);
  EXPECT_EQ(limits().memory_left, 50 * kMiB);
  EXPECT_EQ(limits().cpus, 1.5);
  EXPECT_EQ(usable_cpus(root_), std::min(2, usable_cpus()));
}

// Docker without a namespace of groups: the process sees the host's path, and its own group is mounted.
TEST_F(ControlGroup, Version1InAContainerThatSeesTheHostsPath) {
  put("/proc/self/cgroup", "4:memory:/docker/abc/child\n");
  put("/proc/self/mountinfo", "31 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put_memory_v1("/sys/fs/cgroup/memory/child", 300 * kMiB, 0);
  put_memory_v1("/sys/fs/cgroup/memory", 80 * kMiB, 30 * kMiB);
  EXPECT_EQ(limits().memory, 80 * kMiB);
  EXPECT_EQ(limits().memory_left, 50 * kMiB);
}

// A path outside of what is mounted (unshare without a new mount): the mounted group counts.
TEST_F(ControlGroup, APathOutsideOfTheMountIsTheMountedGroup) {
  put("/proc/self/cgroup", "0::/../other\n");
  put("/proc/self/mountinfo", kMountV2);
  put_memory("/sys/fs/cgroup", std::to_string(64 * kMiB), 64 * kMiB + 5);
  EXPECT_EQ(limits().memory, 64 * kMiB);
  EXPECT_EQ(limits().memory_left, 0u);
}

}  // namespace
}  // namespace palimpsest::testing
