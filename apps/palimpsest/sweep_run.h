// One run of a sweep: this program as a child, and its line of results.
#pragma once

#include <nlohmann/json.hpp>

#include "palimpsest/eval/sweep_plan.h"

namespace palimpsest::cli {

// Adds --json to the command. The line has command, version, placeholders, started, seconds, peak_bytes, code, and
// result or error; a warning with a result. After an interrupt it may be incomplete.
nlohmann::json run_line(const SweepRun& run);

}  // namespace palimpsest::cli
