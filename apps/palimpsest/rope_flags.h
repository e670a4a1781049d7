// The flags of rope scaling, as llama.cpp has them.
#pragma once

#include <CLI/CLI.hpp>

#include "palimpsest/model/rope_settings.h"

namespace palimpsest::cli {

void add_rope_flags(CLI::App& command, RopeSettings& settings);

}  // namespace palimpsest::cli
