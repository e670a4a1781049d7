// A policy's own options: what its paper ablates, or implementations differ in. A policy lists them, each bound to a
// member of its (Policy::options); each is a key of a method's text ("snapkv:window=64"). The text "auto" means that it
// is not set: the policy keeps its member's initial value.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/parse.h"

namespace palimpsest {

// Those that are set, by name. Values are as PolicyOption::get returns them.
using PolicyOptions = std::map<std::string, std::string, std::less<>>;

struct OptionText {
  std::string_view name, values, meaning;  // for help: values are "TOKENS"; meaning is one line, without the policy
};

struct PolicyOption : OptionText {
  std::function<void(std::string_view value)> set;  // throws Error
  std::function<std::string()> get;
};

// An integer from 1 to `max`.
inline PolicyOption count_option(const OptionText& text, int& field, int max) {
  return {text,
          [=, &field](std::string_view value) { field = static_cast<int>(parse_integer(value, text.name, 1, max)); },
          [&field] { return std::to_string(field); }};
}

// One of `names`, which are in the order of the enumerators and outlive the option.
template <typename Enum>
PolicyOption choice_option(const OptionText& text, Enum& field, std::span<const std::string_view> names) {
  return {text,
          [=, &field](std::string_view value) {
            std::vector<std::string_view> all = {"auto"};
            all.insert(all.end(), names.begin(), names.end());
            field = static_cast<Enum>(parse_choice(value, text.name, all) - 1);
          },
          [=, &field] { return std::string(names[static_cast<std::size_t>(field)]); }};
}

}  // namespace palimpsest
