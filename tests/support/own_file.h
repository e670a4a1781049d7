// Tests run in parallel, each in its own process, so the files of one must not be visible to another.
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
