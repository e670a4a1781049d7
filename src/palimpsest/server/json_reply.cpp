#include "palimpsest/server/json_reply.h"

#include <httplib.h>

namespace palimpsest {

void reply_json(const Json& value, httplib::Response& out) {
  out.set_content(dump(value), "application/json");
}

}  // namespace palimpsest
