#include "palimpsest/eval/data.h"

#include <cassert>
#include <utility>

namespace palimpsest {
namespace {

constexpr std::pair<std::string_view, std::string_view> kFiles[] = {
#define ENTRY(name, text) {name, text},
#include "eval_data.inc"
#undef ENTRY
};

}  // namespace

std::string_view eval_data(std::string_view name) {
  for (const auto& [each, text] : kFiles)
    if (each == name) return text;
  assert(false);
  return {};
}

}  // namespace palimpsest
