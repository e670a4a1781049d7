// A whole answer that is a JSON object or list.
#pragma once

#include "palimpsest/server/api_error.h"

namespace httplib {
struct Response;
}

namespace palimpsest {

void reply_json(const Json& value, httplib::Response& out);

}  // namespace palimpsest
