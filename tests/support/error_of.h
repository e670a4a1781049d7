#pragma once

#include <gtest/gtest.h>

#include <string>

#include "palimpsest/core/error.h"

namespace palimpsest::testing {

// The message of the Error that `action` throws; fails the test if it throws none.
template <typename Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace palimpsest::testing
