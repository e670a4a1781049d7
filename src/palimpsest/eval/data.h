// Files of eval/data/, compiled in, so that an evaluation needs nothing beside the program.
#pragma once

#include <string_view>

namespace palimpsest {

// "haystack.txt", "facts.json", ...; asserts that there is one.
std::string_view eval_data(std::string_view name);

}  // namespace palimpsest
