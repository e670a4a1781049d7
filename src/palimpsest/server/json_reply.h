// A whole answer that is a JSON object or list.
#pragma once

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/http_types.h"

namespace palimpsest {

void reply_json(const Json& value, httplib::Response& out);

}  // namespace palimpsest
