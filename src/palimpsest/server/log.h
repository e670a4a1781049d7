// One line of JSON on standard error for each HTTP request.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// What the line of the request that this thread serves will hold besides time, method, path, status and duration.
// A connection is served by one thread.
Json& log_fields();

void log_begin();  // forgets the last request
// `quiet`: forgets instead of writing.
void log_end(const std::string& method, const std::string& path, int status, bool quiet);

// A stream's line is written when it ends, not when its head is sent: between these two calls log_end only takes note.
void log_later();
void log_now();

void log_event(const std::string& event, const Json& fields, bool quiet);  // a line that belongs to no request

std::string new_id(const char* prefix);  // "cmpl-" and 24 random hexadecimal digits

}  // namespace palimpsest
