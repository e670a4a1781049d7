#include "palimpsest/core/random_bytes.h"

#include <sys/random.h>
#include <sys/types.h>

#include <cerrno>
#include <cstring>

#include "palimpsest/core/error.h"

namespace palimpsest {

void random_bytes(std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count = ::getrandom(to.data(), to.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("the system gives no random numbers ({}): allow getrandom(2)", std::strerror(errno));
    to = to.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace palimpsest
