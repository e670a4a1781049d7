// Random bytes of the system (getrandom): nobody can predict them from earlier ones.
#pragma once

#include <cstddef>
#include <span>

namespace palimpsest {

void random_bytes(std::span<std::byte> to);  // throws Error: the system has no random source

}  // namespace palimpsest
