// A whole answer that is a JSON object or list.
#pragma once

#include <httplib.h>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

inline void reply_json(const Json& value, httplib::Response& out) {
  out.set_content(dump(value), "application/json");
}

}  // namespace palimpsest
