// palimpsest methods: one row a method, worked out from the method itself and from what its policy asks for.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "palimpsest/model/model.h"

namespace palimpsest::cli {

// [{name, paper, summary, method, changes, needs, acts, mechanism, positions, memory | error}] of every preset at
// `budget` (those that have one). `memory`: bytes of a sequence that goes on, {bytes, tokens, bounded}; of one that
// grows, at the trained context. Without a model there is none. `error`: why this method cannot be had so.
nlohmann::ordered_json methods_table(const std::optional<std::string>& budget, const Model* model);
void print_methods_table(const nlohmann::ordered_json& rows);

}  // namespace palimpsest::cli
