#include "palimpsest/options.h"

namespace palimpsest::cli {

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON object instead of text")->group("Output");
}

}  // namespace palimpsest::cli
