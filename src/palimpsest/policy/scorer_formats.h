// The files of the linear policies, for those that read them and for the part that makes them (fit/fitted_files.h).
#pragma once

#include "palimpsest/policy/scorer_file.h"

namespace palimpsest {

inline constexpr ScorerFormat kKvZapFormat = {.policy = "kvzap", .magic = "PLMPKZAP", .extension = ".kvzap"};
inline constexpr ScorerFormat kLearnedFormat = {.policy = "learned", .magic = "PLMPSCOR", .extension = ".scorer"};
inline constexpr ScorerFormat kTemporalFormat = {.policy = "temporal", .magic = "PLMPTIME", .extension = ".temporal"};

// Weights beside those of the key and the value: of policies `kvzap` and `learned`, 1, ||k||, ||v||; of `temporal`,
// these and time (policy/temporal_inputs.h).
inline constexpr std::size_t kLinearInputs = 3, kTemporalInputs = 9;

// `format` with the number of weights of one of this model's heads.
inline ScorerFormat sized(ScorerFormat format, std::size_t inputs, const PolicyModel& model) {
  format.floats = inputs + at(model.head_dim + model.value_dim);
  return format;
}

}  // namespace palimpsest
