// A fit that is not finished: what is done so far, in a file beside the files that it makes (FittedFiles::state), so
// that a killed fit goes on. It is replaced atomically after each text and each row of the table.
//
//   magic[8] version:u32 byte-order:u32 fingerprint:u64 settings | texts | sums, if any | streaming heads | results |
//   checksum of all bytes before: u64
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/fit/fit_sums.h"

namespace palimpsest {

// What a method reached at one budget (fit/comparison.h).
struct FitResult {
  int asked = 0, right = 0;
  double nll = 0;  // mean loss of a token, nats
  double recall() const { return asked > 0 ? static_cast<double>(right) / asked : 0; }
};

struct FitState {
  std::vector<std::vector<TokenId>> texts;
  std::unique_ptr<FitSums> sums;  // of the first sums->texts() texts; none: files were written
  std::vector<double> far;        // [heads] eval/far_attention.h, summed over the first far_texts texts
  int far_texts = 0;
  std::map<std::string, FitResult> results;  // by row and budget

  bool files_written() const { return sums == nullptr; }
};

// `settings`: what else the state depends on, as a text.
struct FitStateFile {
  std::string path, settings;

  // nullopt: there is none, or it is of another model or of other settings; `why` is set then, unless there is none.
  // Throws Error: damaged.
  std::optional<FitState> load(const Model& model, std::string& why) const;
  void save(const Model& model, const FitState& state) const;  // throws Error
  void remove() const noexcept;
};

}  // namespace palimpsest
