// Which requests of web pages are refused: a page of any site may send requests to a server on its visitor's machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

// Whether a Host header names this server. A page can only choose the names of its own domain ("DNS rebinding"), so
// these are taken: addresses, names without a dot, names under .localhost, .local and .internal, and `allowed` ("*":
// all). With or without a port; "": HTTP/1.0.
bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed);

// Whether the request comes from this server's own page or from no page at all, as browsers say it (Sec-Fetch-Site,
// Origin).
bool is_own_origin(const httplib::Request& in);

// Throws ApiError 415 unless the body is JSON by its type. Forms' type, which curl sends for -d, is JSON too if no
// browser sent it: browsers send it from any page without asking.
void check_content_type(const httplib::Request& in);

}  // namespace palimpsest
