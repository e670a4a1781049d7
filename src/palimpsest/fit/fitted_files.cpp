#include "palimpsest/fit/fitted_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/core/new_file.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/eval/head_files.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/policy/query_centres.h"
#include "palimpsest/policy/scorer_formats.h"

namespace palimpsest {
FittedFiles fitted_files(const Model& model, const std::string& folder) {
  namespace fs = std::filesystem;
  if (model.path().empty()) fail("a model of random weights has no file to lie beside: give -m MODEL");
  const fs::path beside = model.path();
  const fs::path base = folder.empty() ? beside : fs::path(folder) / beside.filename();
  const auto named = [&](std::string_view extension) { return fs::path(base).replace_extension(extension).string(); };
  return {.kvzap = named(kKvZapFormat.extension),
          .learned = named(kLearnedFormat.extension),
          .temporal = named(kTemporalFormat.extension),
          .profile = named(".profile"),
          .centres = named(".centres"),
          .streaming = named(".duo"),
          .state = named(".fit")};
}

void check_writable(const FittedFiles& files) {
  const std::string folder = std::filesystem::path(files.state).parent_path().string();
  try {
    NewFile probe(files.state);  // removed: not committed
  } catch (const Error& error) {
    fail(
        "{}: files cannot be written beside the model; give a folder of your own with --folder, and name its files "
        "with scorer=FILE and split=FILE ({})",
        folder.empty() ? "." : folder, error.what());
  }
}

void write_fitted(const FittedFiles& files, const Model& model, const FitSums& sums) {
  const PolicyModel of = policy_model(model, {});
  write_scorer(files.kvzap, sized(kKvZapFormat, kLinearInputs, of), of, sums.kvzap());
  write_scorer(files.learned, sized(kLearnedFormat, kLinearInputs, of), of, sums.learned());
  write_scorer(files.temporal, sized(kTemporalFormat, kTemporalInputs, of), of, sums.temporal());
  if (model.hyper().positions() == PositionKind::kRotary)
    write_scorer(files.centres, QueryCentres(of).format(), of, sums.mean_queries());
  write_profile(files.profile, model, fmt::format("`palimpsest fit`, {} texts, {} tokens", sums.texts(), sums.tokens()),
                sums.shares());
}

void write_profile(const std::string& path, const Model& model, const std::string& how,
                   std::span<const double> shares) {
  write_new_file(path,
                 profile_text(model.hyper().geometry, fingerprint(model), "shares of a budget, by " + how, shares));
}

void write_streaming(const std::string& path, const Model& model, std::span<const double> far) {
  write_new_file(path,
                 streaming_text(model.hyper().geometry, fingerprint(model), "streaming heads, by `palimpsest fit`",
                                "max weight beyond 64 sinks and the newest 256, mean over queries", far,
                                streaming_heads(far, 0.5)));
}

}  // namespace palimpsest
