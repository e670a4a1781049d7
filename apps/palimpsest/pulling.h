// Pulling a model with a progress line, notes on standard error, and Ctrl-C.
#pragma once

#include <string>

#include "palimpsest/hub/pull.h"

namespace palimpsest::cli {

// `name`: for models that are pulled by their address; empty: the file's. Throws Error and PullStopped.
Pulled pull_with_progress(const std::string& text, const std::string& name = {});

// The file of -hf USER/REPO[:QUANT]: as it is on this machine, else pulled.
std::string hub_model_path(const std::string& text);

// palimpsest chat without a model: the path of the first model of the catalogue, if it was pulled; else, on a terminal,
// asks once whether to pull it. Empty: no.
std::string offer_first_model();

}  // namespace palimpsest::cli
