#pragma once

#include <stdexcept>
#include <string>

#include "palimpsest/core/error.h"

namespace palimpsest::testing {

// The message of the Error that `action` throws; "" if it throws none. Throws std::logic_error if the message is not
// one line of text.
template <typename Action>
std::string error_message(Action action) {
  try {
    action();
  } catch (const Error& error) {
    const std::string text = error.what();
    if (text.empty() || text.find('\n') != std::string::npos)
      throw std::logic_error("an error whose message is not one line: \"" + text + "\"");
    return text;
  }
  return "";
}

}  // namespace palimpsest::testing
