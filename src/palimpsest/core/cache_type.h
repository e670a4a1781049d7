// Cache types by the names that flags and results have for them.
#pragma once

#include <string_view>

#include "palimpsest/core/types.h"

namespace palimpsest {

const char* name_of(CacheType type);
// `what` names the value in messages, as in "cache type". Throws Error for a name that is none.
CacheType parse_cache_type(std::string_view text, std::string_view what);

}  // namespace palimpsest
