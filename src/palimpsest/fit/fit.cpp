#include "palimpsest/fit/fit.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/core/sha256.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/eval/far_attention.h"
#include "palimpsest/eval/repetition.h"
#include "palimpsest/fit/own_text.h"

namespace palimpsest {
namespace {

// Everything that the sums depend on beside the model.
std::string settings_of(const ModelFitOptions& o, const std::vector<std::vector<TokenId>>& texts) {
  std::string all;
  for (const auto& text : texts) all.append(reinterpret_cast<const char*>(text.data()), text.size() * sizeof(TokenId));
  return fmt::format("{} {} {} {} {} {} {}", texts.empty() ? "own" : sha256_hex(all), o.texts, o.tokens, o.far_texts,
                     o.far_sinks, o.far_recent, o.keep);
}

// Tokens that a text needs for all measurements, with room for tokens that compete.
int min_text_tokens(const ModelFitOptions& o) {
  return std::max({min_profile_tokens(o.keep), o.far_sinks + o.far_recent + 1, kFitStep * 4 / 3 + 1});
}

}  // namespace

int max_text_tokens(const Hyperparameters& hyper, std::size_t instruction) {
  if (hyper.trained_context <= 0) return 1 << 20;
  constexpr int repeated = static_cast<int>(kRepeatedPart);
  const int max = hyper.trained_context - repeated;
  if (max < 1 || instruction >= kRepeatedPart)
    fail("fitting reads a text and {} tokens of its repetition: the model's trained context of {} is too small",
         repeated, hyper.trained_context);
  return max;
}

std::vector<std::vector<TokenId>> cut_texts(const Vocabulary& vocabulary, const std::string& text,
                                            const ModelFitOptions& options, std::vector<TokenId>& held) {
  const std::vector<TokenId> all = vocabulary.tokenize(text, false, false);
  const std::vector<TokenId> begin = vocabulary.tokenize("", true, false);  // BOS, or nothing
  const std::size_t part = at(options.tokens) - begin.size();
  const std::size_t parts = all.size() / part;
  if (parts < 2)
    fail(
        "the text has {} tokens, and fitting needs two parts of {}, one to fit to and one to measure: give a longer "
        "text, or a smaller --length of at least {}",
        all.size(), options.tokens, min_text_tokens(options));
  const auto cut = [&](std::size_t index) {
    std::vector<TokenId> out = begin;
    const auto from = all.begin() + static_cast<std::ptrdiff_t>(index * part);
    out.insert(out.end(), from, from + static_cast<std::ptrdiff_t>(part));
    return out;
  };
  const std::size_t count = std::min(parts - 1, at(options.texts));
  std::vector<std::vector<TokenId>> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(cut(i * (parts - 1) / count));
  held = cut(parts - 1);
  return out;
}

Fit::Fit(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary, const ModelFitOptions& options,
         std::vector<std::vector<TokenId>> texts)
    : decoder_(std::move(decoder)),
      vocabulary_(std::move(vocabulary)),
      options_(options),
      own_(texts.empty()),
      files_(fitted_files(decoder_->model(), options.folder)),
      file_{files_.state, settings_of(options, texts)} {
  check_observable(*decoder_);
  if (options.tokens < min_text_tokens(options))
    fail("a text of {} tokens is too short to fit to: give at least {}", options.tokens, min_text_tokens(options));
  const int max = max_text_tokens(decoder_->model().hyper(), repeat_instruction(*vocabulary_).size());
  if (options.tokens > max)
    fail("a text of {} tokens and its repetition exceed the trained context of {}: give at most {}", options.tokens,
         decoder_->model().hyper().trained_context, max);
  check_writable(files_);
  if (auto state = file_.load(decoder_->model(), abandoned_)) {
    state_ = std::move(*state);
    resumed_ = true;
  } else {
    state_.texts = std::move(texts);
    state_.sums = std::make_unique<FitSums>(decoder_->model());
  }
}

bool Fit::run(const Progress& progress) {
  if (state_.files_written()) return true;
  if (!write(progress) || !read(progress) || !find_heads(progress)) return false;
  write_fitted(files_, decoder_->model(), *state_.sums);
  std::vector<double> far = state_.far;
  for (double& share : far) share /= std::max(1, state_.far_texts);
  write_streaming(files_.streaming, decoder_->model(), far);
  state_.sums.reset();
  save();
  return true;
}

bool Fit::write(const Progress& progress) {
  if (!own_) return true;
  const long long total = static_cast<long long>(options_.texts) * options_.tokens;
  const auto report = [&](long long done) {
    return progress(Stage::kWrite, static_cast<long long>(state_.texts.size()) * options_.tokens + done, total);
  };
  if (!report(0)) return false;
  while (static_cast<int>(state_.texts.size()) < options_.texts) {
    const int first = static_cast<int>(state_.texts.size()), count = std::min(kOwnTextBatch, options_.texts - first);
    auto texts = write_texts(decoder_, vocabulary_, first, count, options_.tokens,
                             [&](long long done, long long) { return report(done); });
    if (texts.empty()) return false;
    for (auto& text : texts) state_.texts.push_back(std::move(text));
    save();
  }
  return true;
}

bool Fit::read(const Progress& progress) {
  const std::vector<TokenId> instruction = repeat_instruction(*vocabulary_);
  const long long total = 2LL * static_cast<long long>(state_.texts.size()) * options_.tokens;
  const auto report = [&](long long done) {
    return progress(Stage::kRead, 2LL * state_.sums->texts() * options_.tokens + done, total);
  };
  if (!report(0)) return false;
  while (at(state_.sums->texts()) < state_.texts.size()) {
    const auto& text = state_.texts[at(state_.sums->texts())];
    bool complete = true;
    const Observation of =
        observe(*decoder_, text, instruction, state_.sums->queries(), [&](long long done, long long) {
          complete = report(done);
          return complete;
        });
    if (!complete) return false;  // the sums have part of a text's queries: they end with this program
    state_.sums->add(of, options_.keep);
    save();
  }
  return true;
}

bool Fit::find_heads(const Progress& progress) {
  const int count = std::min(options_.far_texts, static_cast<int>(state_.texts.size()));
  const long long total = static_cast<long long>(count) * options_.tokens;
  state_.far.resize(at(decoder_->model().hyper().geometry.heads()));
  const auto report = [&](long long done) {
    return progress(Stage::kHeads, static_cast<long long>(state_.far_texts) * options_.tokens + done, total);
  };
  if (!report(0)) return false;
  while (state_.far_texts < count) {
    bool complete = true;
    const auto far = far_attention(*decoder_, state_.texts[at(state_.far_texts)], options_.far_sinks,
                                   options_.far_recent, [&](long long done, long long) {
                                     complete = report(done);
                                     return complete;
                                   });
    if (!complete) return false;
    for (std::size_t head = 0; head < far.size(); ++head) state_.far[head] += far[head];
    ++state_.far_texts;
    save();
  }
  return true;
}

}  // namespace palimpsest
