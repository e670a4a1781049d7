#include "palimpsest/fit/own_shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/head_profile.h"
#include "palimpsest/eval/repetition.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/fit/fitted_files.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {
namespace {

namespace fs = std::filesystem;

constexpr int kFewestTokens = 64;  // of which shares say something

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path profiles_folder() {
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty() && cache.front() == '/')
    return fs::path(cache) / "palimpsest" / "profiles";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "palimpsest" / "profiles";
}

int tokens_that_fit(const Hyperparameters& hyper) {
  const int trained = hyper.trained_context;
  return trained > 0 ? std::min(kOwnShareTokens, trained - static_cast<int>(kRepeatedPart)) : kOwnShareTokens;
}

// Whether the method uses shares that the model has no file for, and that can be measured.
bool wants_own(const Model& model, const SessionOptions& options) {
  const Hyperparameters& hyper = model.hyper();
  return hyper.profile_file.empty() && !model.path().empty() && model.options().lora.empty() &&
         tokens_that_fit(hyper) >= kFewestTokens && wants_profile(options.method, plan_target(hyper, options));
}

std::string file_of(const Model& model, const fs::path& folder) {
  return (folder / fmt::format("{:016x}.profile", fingerprint(model))).string();
}

}  // namespace

std::vector<double> quick_shares(Decoder& decoder, const Vocabulary& vocabulary, const std::string& text, int tokens,
                                 const ShareProgress& progress) {
  auto read = vocabulary.tokenize(text, true, false);
  read.resize(std::min(read.size(), at(tokens)));
  bool complete = true;
  auto shares =
      head_profile(decoder, read, repeat_instruction(vocabulary), kProfileKeep, [&](long long done, long long total) {
        complete = !progress || progress(done, total);
        return complete;
      });
  return complete ? shares : std::vector<double>();
}

OwnShares own_shares(const std::shared_ptr<Model>& model, const Vocabulary& vocabulary, const SessionOptions& options,
                     StepThreads threads, const ShareProgress& progress) {
  if (!wants_own(*model, options)) return {};
  const int tokens = tokens_that_fit(model->hyper());
  Decoder decoder(model, threads);
  if (!decoder.cache_options().pages) return {};  // a device's heads have the slots of the fullest
  const fs::path folder = profiles_folder();
  if (folder.empty()) return {.problem = "HOME is not set"};
  OwnShares out{.file = file_of(*model, folder)};
  try {
    std::error_code error;
    if (fs::is_regular_file(out.file, error)) return out;
    fs::create_directories(folder, error);
    { const NewFile probe(out.file); }  // throws before the time is spent
    const auto start = std::chrono::steady_clock::now();
    const auto shares = quick_shares(decoder, vocabulary, std::string(eval_data("haystack.txt")), tokens, progress);
    if (shares.empty()) return {};
    write_profile(out.file, *model, fmt::format("the program itself, {} tokens", tokens), shares);
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const Error& problem) {
    return {.problem = problem.what()};
  }
  return out;
}

std::string kept_shares(const Model& model, const SessionOptions& options) {
  const fs::path folder = profiles_folder();
  if (folder.empty() || !wants_own(model, options)) return {};
  std::string file = file_of(model, folder);
  std::error_code error;
  return fs::is_regular_file(file, error) ? file : std::string();
}

}  // namespace palimpsest
