// The request log: one line of JSON on standard error for each HTTP request.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"

namespace palimpsest {

// Additional fields of the current request's line, beside time, method, path, status and duration. Thread-local: one
// thread serves a connection.
Json& log_fields();

void log_begin();  // clears the fields and starts the timer
// Writes the line, or only clears the fields if `quiet`.
void log_end(const std::string& method, const std::string& path, int status, bool quiet);

// Defer the line of a stream from its headers to its end: after log_later(), log_end() records the line and log_now()
// writes it.
void log_later();
void log_now();

void log_event(const std::string& event, const Json& fields, bool quiet);  // a line outside of any request

// "cmpl-" and 24 hexadecimal digits of the system's random source.
std::string new_id(const char* prefix);

}  // namespace palimpsest
