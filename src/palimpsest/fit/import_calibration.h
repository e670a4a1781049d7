// Calibrations that others have published, as files beside a model in the formats of its methods:
//
//   statistics of TriAttention (.pt)            .centres   policy/query_centres.h
//   head budgets of Attention Matching (.json)  .profile   budget/split.h
//   patterns of DuoAttention (.tsv)             .duo       budget/split.h
//
// They are checked by shape: a file does not say which model's weights it was measured on.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "palimpsest/fit/foreign_file.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct Imported {
  std::string extension;  // ".centres"
  std::string what;       // "statistics of TriAttention"
  std::string of;         // the model's name, if the file has one
  std::string content;    // the file to write
};

// `name`: of the file, in errors. Throws Error: unknown, damaged, of another shape than the model, or without a form
// that the methods here can use (weights of KVzap, whose input is the hidden state).
Imported import_calibration(std::span<const std::byte> bytes, const std::string& name, const Model& model);

}  // namespace palimpsest
