// The names of cache types in flags and results.
#pragma once

#include <string>
#include <string_view>

#include "palimpsest/core/types.h"

namespace palimpsest {

const char* name_of(CacheType type);
// `what` names the value in messages, as in "cache type". Throws Error for an unknown name.
CacheType parse_cache_type(std::string_view text, std::string_view what);

// The types of keys and of values. A single type means both.
struct CacheTypes {
  CacheType key = CacheType::kF16, value = CacheType::kF16;

  CacheTypes() = default;
  CacheTypes(CacheType both) : CacheTypes(both, both) {}
  CacheTypes(CacheType key, CacheType value) : key(key), value(value) {}

  bool operator==(const CacheTypes&) const = default;
};

std::string name_of(CacheTypes types);   // "f16" if equal, else keys/values: "q8_0/f16"
std::string flags_of(CacheTypes types);  // the flags that select them: "--cache-type-k q8_0 --cache-type-v f16"

}  // namespace palimpsest
