// info --cache: what a cache holds, term by term.
#pragma once

#include <nlohmann/json.hpp>

#include "palimpsest/options.h"

namespace palimpsest::cli {

// `tokens`: how many there will be in all; none: no end, or the trained context if nothing leaves. `batch`: sequences,
// each with a cache of its own.
nlohmann::ordered_json cache_terms(const SessionOptions& options, const Hyperparameters& hyper,
                                   std::optional<long long> tokens, long long batch);
void print_cache_terms(const nlohmann::ordered_json& terms);

}  // namespace palimpsest::cli
