// Thrown for bad input or a bad environment: one line that says what was wrong and what to do. Our own bugs are
// asserts.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace palimpsest {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace palimpsest
