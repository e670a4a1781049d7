// Times as texts of ISO 8601, in UTC.
#pragma once

#include <ctime>
#include <string>

namespace palimpsest {

std::string iso_time(std::time_t time);
std::string iso_time();  // now

}  // namespace palimpsest
