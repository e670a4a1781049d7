// info --cache: the terms of a cache's size.
#pragma once

#include <nlohmann/json.hpp>

#include "palimpsest/options.h"

namespace palimpsest::cli {

// `tokens`: total number of tokens; none: unbounded, or the trained context for methods that do not evict. `batch`:
// number of sequences, each with its own cache.
nlohmann::ordered_json cache_terms(const SessionOptions& options, const Hyperparameters& hyper,
                                   std::optional<long long> tokens, long long batch);
void print_cache_terms(const nlohmann::ordered_json& terms);

}  // namespace palimpsest::cli
