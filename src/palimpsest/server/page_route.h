// The page at "/": chat and the view of memory (server/page). GET /v1/methods: the methods that it offers.
#pragma once

#include "palimpsest/server/http_types.h"

namespace palimpsest {

void page(const httplib::Request& in, httplib::Response& out);
void list_methods(const httplib::Request& in, httplib::Response& out);

}  // namespace palimpsest
