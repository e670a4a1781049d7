#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "palimpsest/policy/policy.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

// Each policy is one file: the registry must list all files.
TEST(PolicyRegister, IsTheListOfFiles) {
  std::set<std::string> files, registered;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "src" / "palimpsest" / "policy")) {
    std::string stem = entry.path().stem().string();
    if (entry.path().extension() != ".cpp" || stem == "registry" || stem == "scorer_file") continue;
    std::ranges::replace(stem, '_', '-');
    files.insert(stem);
  }
  for (const auto& entry : policies()) registered.insert(std::string(entry.name));
  registered.erase("from-outside");
  EXPECT_FALSE(files.empty());
  EXPECT_EQ(files, registered);
}

TEST(PolicyRegister, IsSortedAndEveryEntryWorks) {
  EXPECT_TRUE(std::ranges::is_sorted(policies(), {}, &PolicyEntry::name));
  for (const auto& entry : policies()) {
    EXPECT_NE(entry.make(), nullptr) << entry.name;
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
  }
}

TEST(PolicyRegister, AnUnknownNameIsAnErrorThatListsTheOthers) {
  const auto message = error_of([] { make_policy("recnet"); });
  EXPECT_NE(message.find("unknown policy 'recnet'; did you mean 'recent'? Use"), std::string::npos) << message;
  EXPECT_NE(message.find("recent"), std::string::npos) << message;
}

class Flat final : public Policy {
 public:
  Signals signals() const override { return {}; }
  void score(const HeadView&, std::span<float> score) const override { std::ranges::fill(score, 0.0F); }
};
PALIMPSEST_POLICY(flat, Flat, "all alike")

TEST(PolicyRegister, TakesPoliciesFromOutside) {
  const auto entry = policy_entry_flat("from-outside");
  register_policy(entry);
  EXPECT_NE(make_policy("from-outside"), nullptr);
  EXPECT_EQ(error_of([&] { register_policy(entry); }),
            "a policy named 'from-outside' exists already: choose another name");
  EXPECT_EQ(error_of([] { register_policy(policy_entry_flat("none")); }),
            "a policy named 'none' exists already: choose another name");
  for (const char* name : {"", "Upper", "a_b", "a,b", "a=b"})
    EXPECT_EQ(error_of([&] { register_policy(policy_entry_flat(name)); }),
              "policy name '" + std::string(name) + "': use lower-case letters, digits and dashes");
  EXPECT_TRUE(std::ranges::is_sorted(policies(), {}, &PolicyEntry::name));
}

}  // namespace
}  // namespace palimpsest::testing
