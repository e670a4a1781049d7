#include "palimpsest/evict/method.h"

namespace palimpsest {

std::pair<std::size_t, int> Method::pins_at_start() const {
  std::size_t count = 0;
  Position end = protection.sinks.of(budget);
  for (; count < protection.pins.size() && protection.pins[count].first <= end; ++count)
    end = std::max(end, protection.pins[count].last);
  return {count, static_cast<int>(count == 0 ? 0 : end)};
}

}  // namespace palimpsest
