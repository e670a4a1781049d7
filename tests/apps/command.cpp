#include "tests/apps/command.h"

namespace palimpsest::testing {

std::string command_path() {
  return PALIMPSEST_PROGRAM;
}

}  // namespace palimpsest::testing
