// Tests run side by side, each in a process of its own: what one writes, no other may find.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace palimpsest::testing {

// A path in the temporary folder that only this process uses.
inline std::string own_file(const std::string& name) {
  return ::testing::TempDir() + "palimpsest-" + std::to_string(::getpid()) + "-" + name;
}

}  // namespace palimpsest::testing
