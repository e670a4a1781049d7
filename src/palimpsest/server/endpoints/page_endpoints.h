// The page at "/": chat and the view of memory (server/page). GET /v1/methods: the methods that it offers, and why the
// model cannot run some.
#pragma once

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

class Service;

void page(const httplib::Request& in, httplib::Response& out);
void list_methods(Service& service, httplib::Response& out);

}  // namespace palimpsest
