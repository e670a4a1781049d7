#include "palimpsest/core/cache_type.h"

#include <fmt/format.h>

#include <array>

#include "palimpsest/core/parse.h"

namespace palimpsest {
namespace {

#define PALIMPSEST_TYPE(enumerator, name) std::string_view(#name),
constexpr std::array kNames = {PALIMPSEST_CACHE_TYPES(PALIMPSEST_TYPE)};
#undef PALIMPSEST_TYPE

}  // namespace

const char* name_of(CacheType type) {
  return kNames[static_cast<std::size_t>(type)].data();
}

CacheType parse_cache_type(std::string_view text, std::string_view what) {
  return static_cast<CacheType>(parse_choice(text, what, kNames));
}

std::string name_of(CacheTypes types) {
  if (types.key == types.value) return name_of(types.key);
  return fmt::format("{}/{}", name_of(types.key), name_of(types.value));
}

std::string flags_of(CacheTypes types) {
  if (types.key == types.value) return fmt::format("--cache-type {}", name_of(types.key));
  return fmt::format("--cache-type-k {} --cache-type-v {}", name_of(types.key), name_of(types.value));
}

}  // namespace palimpsest
