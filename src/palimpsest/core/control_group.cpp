#include "palimpsest/core/control_group.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

namespace palimpsest {
namespace {

// A group of the process, and those around it, in one hierarchy.
struct Hierarchy {
  std::string mount;   // the folder of the outermost visible group
  std::string folder;  // of the process's group: `mount` or below it
};

std::optional<std::size_t> number(std::string_view text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end != text.data() ? std::optional(value) : std::nullopt;  // "max", "-1": none
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<std::size_t> number_in(const std::string& path) {
  return number(first_line(path));
}

// The number of a line "NAME NUMBER"; 0: there is none.
std::size_t field_in(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line))
    if (line.starts_with(name + " ")) return number(std::string_view(line).substr(name.size() + 1)).value_or(0);
  return 0;
}

bool has(std::string_view list, std::string_view name) {  // of names with commas
  return ("," + std::string(list) + ",").find("," + std::string(name) + ",") != std::string::npos;
}

// The process's group in the hierarchy of `controller`, from its root; "": that of v2. Lines are ID:CONTROLLERS:PATH.
std::optional<std::string> group_of(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : has(controllers, controller)) return line.substr(second + 1);
  }
  return std::nullopt;
}

// Where a hierarchy is mounted: the last such line of mountinfo, whose fields are ID PARENT DEVICE ROOT MOUNT ... -
// TYPE SOURCE OPTIONS. In a container without a namespace of groups, ROOT is the container's group.
std::optional<Hierarchy> hierarchy_of(const std::string& root, std::string_view controller) {
  const auto group = group_of(root, controller);
  if (!group) return std::nullopt;
  std::ifstream file(root + "/proc/self/mountinfo");
  std::optional<Hierarchy> found;
  std::string line;
  while (std::getline(file, line)) {
    const auto dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream left(line.substr(0, dash)), right(line.substr(dash + 3));
    std::string skipped, mounted, at, type, options;
    left >> skipped >> skipped >> skipped >> mounted >> at;
    right >> type >> skipped >> options;
    if (controller.empty() ? type != "cgroup2" : type != "cgroup" || !has(options, controller)) continue;
    const std::string top = mounted == "/" ? "" : mounted;
    const bool below = group->starts_with(top + "/") && group->find("/..") == std::string::npos;
    const std::string inside = below ? group->substr(top.size()) : "";
    found = Hierarchy{root + at, root + at + (inside == "/" ? "" : inside)};
  }
  return found;
}

// From the process's group to the outermost one.
std::vector<std::string> groups_of(const std::string& root, std::string_view controller) {
  std::vector<std::string> folders;
  const auto hierarchy = hierarchy_of(root, controller);
  if (!hierarchy) return folders;
  for (std::string folder = hierarchy->folder; folder.size() > hierarchy->mount.size();
       folder.resize(folder.rfind('/')))
    folders.push_back(folder);
  folders.push_back(hierarchy->mount);
  return folders;
}

void limit_memory(std::optional<std::size_t> limit, std::size_t usage, std::size_t files, ControlGroupLimits& out) {
  if (!limit) return;
  const std::size_t used = usage - std::min(usage, files);
  out.memory = std::min(out.memory, *limit);
  out.memory_left = std::min(out.memory_left, *limit - std::min(*limit, used));
}

void limit_cpus(std::optional<std::size_t> quota, std::optional<std::size_t> period, ControlGroupLimits& out) {
  if (quota && period && *period > 0)
    out.cpus = std::min(out.cpus, static_cast<double>(*quota) / static_cast<double>(*period));
}

}  // namespace

ControlGroupLimits control_group_limits(const std::string& root) {
  ControlGroupLimits out;
  for (const std::string& group : groups_of(root, "")) {
    limit_memory(number_in(group + "/memory.max"), number_in(group + "/memory.current").value_or(0),
                 field_in(group + "/memory.stat", "inactive_file"), out);
    std::istringstream quota(first_line(group + "/cpu.max"));  // QUOTA PERIOD
    std::string used, period;
    quota >> used >> period;
    limit_cpus(number(used), number(period), out);
  }
  for (const std::string& group : groups_of(root, "memory"))
    limit_memory(number_in(group + "/memory.limit_in_bytes"), number_in(group + "/memory.usage_in_bytes").value_or(0),
                 field_in(group + "/memory.stat", "total_inactive_file"), out);
  for (const std::string& group : groups_of(root, "cpu"))
    limit_cpus(number_in(group + "/cpu.cfs_quota_us"), number_in(group + "/cpu.cfs_period_us"), out);
  return out;
}

}  // namespace palimpsest
