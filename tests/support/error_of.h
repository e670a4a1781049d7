#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/support/error_message.h"

namespace palimpsest::testing {

// The message of the Error that `action` throws; fails the test if it throws none.
template <typename Action>
std::string error_of(Action action) {
  const std::string message = error_message(action);
  EXPECT_FALSE(message.empty()) << "no Error was thrown";
  return message;
}

}  // namespace palimpsest::testing
