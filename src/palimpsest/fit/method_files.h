// The files beside a model that a method reads: a profile of heads, streaming heads, a scorer, mean queries.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/evict/method_plan.h"

namespace palimpsest {

// Paths; of a model of random weights, or files that are missing: none.
std::vector<std::string> files_of(const MethodPlan& plan, const std::string& model_path);

}  // namespace palimpsest
