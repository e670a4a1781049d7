// Makes the files of a model (fit/fitted_files.h), from texts of the user or texts that the model writes itself.
//
//   write     own texts only: some at a time, token by token                           (fit/own_text.h)
//   read      each text twice: sums of scorers, shares and mean queries                (fit/observation.h, fit_sums.h)
//   heads     some texts token by token: streaming heads                               (eval/far_attention.h)
//   files     solves the sums and writes the files
//
// After each text the state is saved: a fit with the same settings goes on from there.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/fit/fit_state.h"
#include "palimpsest/fit/fitted_files.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct ModelFitOptions {
  int texts = 16;     // max number of texts
  int tokens = 2048;  // of a text
  int far_texts = 2;  // texts that are read for streaming heads
  int far_sinks = 64, far_recent = 256;
  double keep = kProfileKeep;
  std::string folder = {};  // of the files; empty: the model's
};

// Texts of `tokens` tokens, spread over a user's text; each begins with BOS if the vocabulary adds one. `held` gets the
// last part of the text, which is in none of them. Throws Error: too short.
std::vector<std::vector<TokenId>> cut_texts(const Vocabulary& vocabulary, const std::string& text,
                                            const ModelFitOptions& options, std::vector<TokenId>& held);
// The max length of a text: its repetition must fit into the trained context, too. Throws Error: there is none.
int max_text_tokens(const Hyperparameters& hyper, std::size_t instruction);

class Fit {
 public:
  enum class Stage { kWrite, kRead, kHeads };
  // Returning false ends the fit; its state is saved up to the last text.
  using Progress = std::function<bool(Stage stage, long long done, long long total)>;

  // `texts`: of the user; empty: the model writes them. Loads a state, if there is one. Throws Error: a folder that
  // cannot be written, a model that cannot be observed.
  Fit(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary, const ModelFitOptions& options,
      std::vector<std::vector<TokenId>> texts);

  bool run(const Progress& progress);  // whether all files are written
  const FittedFiles& files() const { return files_; }
  FitState& state() { return state_; }
  void save() const { file_.save(decoder_->model(), state_); }
  void finish() const noexcept { file_.remove(); }  // removes the state
  bool resumed() const { return resumed_; }
  const std::string& abandoned() const { return abandoned_; }  // why an older state is not used; "": there is none

 private:
  bool write(const Progress& progress);
  bool read(const Progress& progress);
  bool find_heads(const Progress& progress);

  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  ModelFitOptions options_;
  bool own_;
  FittedFiles files_;
  FitStateFile file_;
  FitState state_;
  bool resumed_ = false;
  std::string abandoned_;
};

}  // namespace palimpsest
