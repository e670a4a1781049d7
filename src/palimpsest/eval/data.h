// The files of eval/data/, embedded in the program.
#pragma once

#include <string_view>

namespace palimpsest {

// "haystack.txt", "facts.json", ...; asserts that the file exists.
std::string_view eval_data(std::string_view name);

}  // namespace palimpsest
