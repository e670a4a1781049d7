#include "palimpsest/server/reply/iso_time.h"

#include <fmt/chrono.h>

namespace palimpsest {

std::string iso_time(std::time_t time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time));
}

std::string iso_time() {
  return iso_time(std::time(nullptr));
}

}  // namespace palimpsest
