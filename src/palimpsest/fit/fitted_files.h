// The files that fitting makes for a model, in the formats that their readers have. Names are those of the model's file
// with another extension, so that methods find them (docs/decisions/0037); they are replaced atomically.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/fit/fit_sums.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct FittedFiles {
  std::string kvzap, learned, temporal, profile, centres, streaming;  // paths
  std::string state;                                                  // of a fit that is not finished
};

// `folder`: empty: the model's. Throws Error: random weights have no file to lie beside.
FittedFiles fitted_files(const Model& model, const std::string& folder);
// Throws Error, with what to do, if a file cannot be written there.
void check_writable(const FittedFiles& files);

// Writes all files but that of streaming heads. Throws Error.
void write_fitted(const FittedFiles& files, const Model& model, const FitSums& sums);
// `how`: what made them. Throws Error.
void write_profile(const std::string& path, const Model& model, const std::string& how, std::span<const double> shares);
// `far`: eval/far_attention.h; the lower half of the heads are streaming heads. Throws Error.
void write_streaming(const std::string& path, const Model& model, std::span<const double> far);

}  // namespace palimpsest
