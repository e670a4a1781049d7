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
  for (const PolicyOption& option : policy->options())
    if (const auto given = options.find(option.name); given != options.end()) option.set(given->second);
  return policy;
}

std::vector<OptionText> policy_options() {
  std::vector<OptionText> options;
  for (const PolicyEntry& entry : policies())
    for (const OptionText& option : entry.options)
      if (std::ranges::find(options, option.name, &OptionText::name) == options.end()) options.push_back(option);
  return options;
}

std::vector<std::string_view> policies_with_option(std::string_view option) {
  std::vector<std::string_view> names;
  for (const PolicyEntry& entry : policies())
    if (std::ranges::find(entry.options, option, &OptionText::name) != entry.options.end()) names.push_back(entry.name);
  return names;
}

bool has_option(std::string_view policy, std::string_view option) {
  const std::vector<std::string_view> names = policies_with_option(option);
  return std::ranges::find(names, policy) != names.end();
}

void set_policy_option(PolicyOptions& options, std::string_view policy, std::string_view option,
                       std::string_view value) {
  options.erase(std::string(option));
  if (value == "auto") return;
  const auto owner = make_policy(has_option(policy, option) ? policy : policies_with_option(option).front());
  const std::vector<PolicyOption> all = owner->options();
  const PolicyOption& own = *std::ranges::find(all, option, &PolicyOption::name);
  own.set(value);
  options.emplace(option, own.get());
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
