// palimpsest methods: one row per method, derived from its preset and its policy's signals.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "palimpsest/model/model.h"

namespace palimpsest::cli {

// [{name, paper, summary, method, changes, needs, acts, mechanism, positions, memory, error}] of every preset at
// `budget` (if it has one). `memory`: bytes of a sequence, {bytes, tokens, bounded}; max bytes if bounded, else at the
// trained context; omitted without a model. `error`: why the model cannot run this combination; a missing scorer is an
// error of models in files only.
nlohmann::ordered_json methods_table(const std::optional<std::string>& budget, const Model* model);
void print_methods_table(const nlohmann::ordered_json& rows);

}  // namespace palimpsest::cli
