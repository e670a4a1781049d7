#include "tests/support/draws.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace palimpsest::testing {

std::mt19937& draws() {
  static std::map<std::string, std::mt19937> of_tests;
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const auto [found, is_new] = of_tests.try_emplace(test);
  if (is_new) {
    const char* const text = std::getenv("PALIMPSEST_SEED");
    std::string seed = text == nullptr ? "1" : text;
    if (seed == "random") seed = std::to_string(std::random_device{}());
    std::printf("PALIMPSEST_SEED=%s\n", seed.c_str());
    seed += test;
    std::seed_seq mixed(seed.begin(), seed.end());
    found->second.seed(mixed);
  }
  return found->second;
}

}  // namespace palimpsest::testing
