#include <algorithm>
#include <cctype>
#include <mutex>

#include "palimpsest/core/error.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

// Declared and called by name, not registered by static objects: the linker drops those from a static library.
#define ENTRY(file, name) PolicyEntry policy_entry_##file(std::string_view);
#include "policy_list.inc"
#undef ENTRY

namespace {

std::mutex registry_mutex;

std::vector<PolicyEntry>& entries() {  // with registry_mutex held
  static std::vector<PolicyEntry> all = [] {
    std::vector<PolicyEntry> built_in = {
#define ENTRY(file, name) policy_entry_##file(name),
#include "policy_list.inc"
#undef ENTRY
    };
    std::ranges::sort(built_in, {}, &PolicyEntry::name);
    return built_in;
  }();
  return all;
}

bool well_formed(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-';
  });
}

}  // namespace

std::vector<PolicyEntry> policies() {
  const std::lock_guard lock(registry_mutex);
  return entries();
}

std::unique_ptr<Policy> make_policy(std::string_view name, const PolicyOptions& options) {
  const std::vector<PolicyEntry> all = policies();  // `make` runs without the lock
  std::vector<std::string_view> names;
  for (const auto& entry : all) names.push_back(entry.name);
  std::unique_ptr<Policy> policy = all[parse_choice(name, "policy", names)].make();
  policy->configure(options);
  return policy;
}

void register_policy(const PolicyEntry& entry) {
  if (!well_formed(entry.name)) fail("policy name '{}': use lower-case letters, digits and dashes", entry.name);
  const std::lock_guard lock(registry_mutex);
  auto& all = entries();
  const auto place = std::ranges::lower_bound(all, entry.name, {}, &PolicyEntry::name);
  if (entry.name == "none" || (place != all.end() && place->name == entry.name))
    fail("a policy named '{}' exists already: choose another name", entry.name);
  all.insert(place, entry);
}

}  // namespace palimpsest
