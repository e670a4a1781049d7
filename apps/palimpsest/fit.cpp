// palimpsest fit: makes a model's files for the methods that need some, and measures what they gain.
#include "palimpsest/fit/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/plain_text.h"
#include "palimpsest/fit/comparison.h"
#include "palimpsest/fit/own_shares.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kFitFooter =
    R"(Makes files beside model.gguf, which methods find by themselves:
  model.profile   shares of the budget by head: split=profile, which method auto uses by itself
  model.kvzap     scorer of policy kvzap: predicts KVzip's scores from keys and values
  model.duo       streaming heads: method duo
  model.centres   mean queries: method triattention
  model.scorer    scorer of policy learned
  model.temporal  scorer of policy temporal
Each names the model that it was made for; other models refuse it. The text is FILE, or texts that the model
writes itself. A fit that was stopped goes on when the same command is given again (its state is model.fit).
At the end a table compares methods with and without the files, at budgets of 1/4, 1/8 and 1/16 of the text:
facts found in a text of 1,024 tokens that was compressed before the questions, and perplexity of a text that
was not fitted to. Not supported: layers that have KV heads of different shapes (--quick is, and palimpsest
heads measures some of the files for such models), --lora, --portable, --device, --rpc.

Examples:
  palimpsest fit -m model.gguf --quick
  palimpsest fit -m model.gguf
  palimpsest run -m model.gguf --budget 256
  palimpsest fit -m model.gguf -f book.txt --table all
  palimpsest fit -m /usr/share/model.gguf --folder ~/fitted
  palimpsest run -m /usr/share/model.gguf --method kvzap:budget=256,scorer=$HOME/fitted/model.kvzap)";

struct FitFlags {
  ModelFlags model;
  ThreadFlags threads;
  std::string file, folder, table = "short";
  long long texts = 16, contexts = 6, length = 2048;
  bool quick = false, json = false;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
std::string duration_text(double seconds) {
  const auto whole = static_cast<long long>(std::lround(std::max(0.0, seconds)));
  return whole < 60 ? fmt::format("{} s", whole) : fmt::format("{}:{:02} min", whole / 60, whole % 60);
}

// Seconds per token, measured on a few: of a prompt, and of decoding.
struct FitSpeed {
  double prompt = 0, decode = 0;
};
FitSpeed measure_speed(const std::shared_ptr<Decoder>& decoder) {
  SessionOptions options;
  options.method = parse_method("full");
  Session session(decoder, options);
  const std::vector<TokenId> prompt(256, 1);
  session.prefill(std::span(prompt).first(16));  // memory is acquired
  FitSpeed speed;
  auto start = Clock::now();
  session.prefill(prompt);
  speed.prompt = seconds_since(start) / 256;
  start = Clock::now();
  for (int i = 0; i < 16; ++i) session.decode(1);
  speed.decode = seconds_since(start) / 16;
  return speed;
}

// Factors as measured on SmolLM2 (docs/decisions/0041): a step of 4 texts takes less than twice that of one; a text is
// read twice, in short chunks, with attention weights.
double fit_seconds(const FitSpeed& speed, const ModelFitOptions& options, bool own, const FitState& state) {
  const double texts = options.texts, tokens = options.tokens;
  const double written = own ? texts - static_cast<double>(state.texts.size()) : 0;
  const double read = state.sums ? texts - state.sums->texts() : 0;
  const double heads = state.sums ? std::min(options.far_texts, options.texts) - state.far_texts : 0;
  return tokens * (written * 0.45 * speed.decode + read * 5 * speed.prompt + heads * 1.3 * speed.decode);
}
double table_seconds(const FitSpeed& speed, std::size_t cells, long long contexts, double length, double held) {
  const double context = length * speed.prompt + FitComparison::kQuestions * 28 * speed.decode;
  return static_cast<double>(cells) * (static_cast<double>(contexts) * context + 1.5 * held * speed.prompt);
}

// A bar for each stage; a line when a stage has ended.
class StageBars {
 public:
  bool update(const std::string& label, const std::string& unit, long long done, long long total) {
    if (label != label_) {
      end();
      label_ = label, unit_ = unit, base_ = done, start_ = Clock::now();
      bar_ = std::make_unique<Progress>(label, unit);
    }
    done_ = done;
    bar_->update(done - base_, total - base_);
    return !interrupted();
  }
  void end() {
    if (bar_ == nullptr) return;
    bar_.reset();
    if (done_ > base_)
      fmt::print(stderr, "{}: {} {} in {}\n", label_, thousands(done_ - base_), unit_,
                 duration_text(seconds_since(start_)));
    label_.clear();
  }

 private:
  std::string label_, unit_;
  std::unique_ptr<Progress> bar_;
  long long base_ = 0, done_ = 0;
  Clock::time_point start_;
};

std::string stage_name(Fit::Stage stage) {
  switch (stage) {
    case Fit::Stage::kWrite:
      return "writing texts";
    case Fit::Stage::kRead:
      return "reading texts twice";
    case Fit::Stage::kHeads:
      return "streaming heads";
  }
  return "";
}

std::string result_key(const ComparisonRow& row, int part) {
  return part == 0 ? "full" : fmt::format("{} 1/{}", row.name, part);
}

// Results that the state has are not measured again. Whether the table is complete.
bool measure_table(Fit& fit, const FitComparison& comparison, const std::vector<ComparisonRow>& rows, StageBars& bars) {
  std::vector<std::pair<const ComparisonRow*, int>> cells = {{&rows.front(), 0}};
  for (const ComparisonRow& row : rows)
    for (const int part : FitComparison::kParts) cells.emplace_back(&row, part);
  auto& results = fit.state().results;
  long long done = 0;
  for (const auto& [row, part] : cells) {
    const std::string key = result_key(*row, part);
    if (!results.contains(key)) {
      const auto result = comparison.measure(
          *row, part, [&] { return bars.update("table", "figures", done, static_cast<long long>(cells.size())); });
      if (!result) return false;
      results[key] = *result;
      fit.save();
    }
    ++done;
  }
  bars.update("table", "figures", done, done);
  bars.end();
  return true;
}

// What a file beside the model changes in method auto, which uses it by itself: it may be worse.
void print_effect(const FitState& state, const std::vector<ComparisonRow>& rows) {
  const ComparisonRow &before = rows[kAutoBefore], &after = rows[kAutoAfter];
  double recall = 0, nll = 0;
  for (const int part : FitComparison::kParts) {
    const FitResult &a = state.results.at(result_key(before, part)), &b = state.results.at(result_key(after, part));
    recall += (b.recall() - a.recall()) / std::size(FitComparison::kParts);
    nll += (b.nll - a.nll) / std::size(FitComparison::kParts);
  }
  fmt::print("auto uses {} now; mean change: facts {:+.0f} points, perplexity {:+.1f}%{}\n", after.split, 100 * recall,
             100 * (std::exp(nll) - 1), recall < 0 || nll > 0.01 ? "; delete this file to keep auto as it was" : "");
}

void print_table(const FitState& state, const FitComparison& comparison, const std::vector<ComparisonRow>& rows,
                 const std::string& text, bool beside) {
  fmt::print("\n{}: {} questions about facts in {} tokens, compressed before the questions; perplexity of {} tokens\n",
             text, comparison.questions(), thousands(comparison.length()), thousands(comparison.held()));
  fmt::print("{:30} | {:^23} | {:^26}\n", "", "facts found", "perplexity");
  fmt::print("{:30} | {:>7} {:>7} {:>7} | {:>8} {:>8} {:>8}\n", "kept of the text", "1/4", "1/8", "1/16", "1/4", "1/8",
             "1/16");
  const auto line = [&](const std::string& name, const std::vector<FitResult>& results) {
    fmt::print("{:30} |", name);
    for (const FitResult& each : results) fmt::print(" {:>6.0f}%", 100 * each.recall());
    fmt::print(" |");
    for (const FitResult& each : results) fmt::print(" {:>8.2f}", std::exp(each.nll));
    fmt::print("\n");
  };
  const FitResult& full = state.results.at("full");
  line("full cache", {full, full, full});
  for (const ComparisonRow& row : rows) {
    std::vector<FitResult> results;
    for (const int part : FitComparison::kParts) results.push_back(state.results.at(result_key(row, part)));
    line((row.fitted() ? "+ " : "  ") + row.name, results);
  }
  if (full.right == 0)
    fmt::print("the full cache finds no fact: this model cannot answer such questions, and recall says nothing\n");
  if (beside) print_effect(state, rows);
  fmt::print("+: with fitted files. 95% of repetitions are within {:.0f} points for a share near 50%\n",
             100 * 1.96 * std::sqrt(0.25 / std::max(1, comparison.questions())));
}

nlohmann::ordered_json table_json(const FitState& state) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  for (const auto& [key, result] : state.results)
    out[key] = {{"questions", result.asked}, {"right", result.right}, {"nll", result.nll}};
  return out;
}

std::vector<std::pair<std::string, std::string>> listed(const FittedFiles& files) {
  return {{files.kvzap, "policy kvzap"},     {files.profile, "split=profile, method auto"},
          {files.streaming, "method duo"},   {files.centres, "method triattention"},
          {files.learned, "policy learned"}, {files.temporal, "policy temporal"}};
}

bool has_sentences(const std::string& text) {
  try {
    return !Haystack(text, "").sentences().empty();
  } catch (const Error&) {
    return false;
  }
}

ModelFitOptions options_of(const FitFlags& flags, const TextModel& loaded) {
  ModelFitOptions options{.folder = flags.folder};
  const int max = max_text_tokens(loaded.model->hyper(), repeat_instruction(*loaded.vocabulary).size());
  options.texts = static_cast<int>(flags.texts);
  options.tokens = static_cast<int>(flags.length == 0 ? std::min(2048, max / kFitStep * kFitStep) : flags.length);
  return options;
}

// MODEL.profile alone, from a short text.
int run_quick(const FitFlags& flags, const TextModel& loaded, const std::string& text) {
  const FittedFiles files = fitted_files(*loaded.model, flags.folder);
  check_writable(files);
  const int max = max_text_tokens(loaded.model->hyper(), repeat_instruction(*loaded.vocabulary).size());
  const int tokens = flags.length == 0 ? std::min(kOwnShareTokens, max) : static_cast<int>(flags.length);
  Decoder decoder(loaded.model, threads_of(flags.threads, loaded.model->hyper()));
  const auto start = Clock::now();
  Progress bar("shares of heads", "tokens");
  const auto shares =
      quick_shares(decoder, *loaded.vocabulary, text.empty() ? std::string(eval_data("haystack.txt")) : text, tokens,
                   [&](long long done, long long total) {
                     bar.update(done, total);
                     return !interrupted();
                   });
  bar.clear();
  if (shares.empty()) return kInterrupted;
  write_profile(files.profile, *loaded.model, fmt::format("`palimpsest fit --quick`, {} tokens", tokens), shares);
  if (flags.json)
    fmt::print("{}\n", nlohmann::ordered_json{{"model", loaded.model->path()}, {"files", {files.profile}}}.dump(2));
  else
    fmt::print("{:9} {}  (split=profile, method auto), in {}\n", human_bytes(std::filesystem::file_size(files.profile)),
               files.profile, duration_text(seconds_since(start)));
  return kOk;
}

int run_fit(const FitFlags& flags) {
  if (flags.model.path.empty()) fail("give -m MODEL: fit writes files beside it");
  if (!flags.model.options.lora.empty())
    fail("--lora: with an adapter it is another model, and files belong to one: merge the adapter into a file first");
  if (flags.texts < 1 || flags.texts > 4096) fail("--texts {}: give 1 to 4,096", flags.texts);
  if (flags.contexts < 1 || flags.contexts > 4096) fail("--contexts {}: give 1 to 4,096", flags.contexts);
  if (flags.length < 0 || flags.length > (1 << 20))
    fail("--length {}: give a number of tokens up to 1,048,576", flags.length);
  if (!flags.folder.empty() && !std::filesystem::is_directory(flags.folder))
    fail("--folder {}: there is no such folder: make it first", flags.folder);
  const bool own = flags.file.empty();
  const std::string given = own ? "" : plain_text(read_text(flags.file, "the text")).text;
  const TextModel loaded = load_text_model(flags.model);
  if (flags.quick) return run_quick(flags, loaded, given);
  ModelFitOptions options = options_of(flags, loaded);
  const auto decoder = std::make_shared<Decoder>(loaded.model, threads_of(flags.threads, loaded.model->hyper()));

  // What is not fitted to, for the table.
  std::string evaluated = own ? std::string(eval_data("haystack.txt")) : "";
  std::vector<TokenId> held;
  std::vector<std::vector<TokenId>> texts;
  const std::string name = own ? "the included stories" : flags.file;
  if (own) {
    held = loaded.vocabulary->tokenize(evaluated, true, false);
    held.resize(std::min(held.size(), at(options.tokens)));
  } else {
    texts = cut_texts(*loaded.vocabulary, given, options, held);
    evaluated = loaded.vocabulary->detokenize(held);
    if (!has_sentences(evaluated)) {
      evaluated = eval_data("haystack.txt");
      fmt::print(stderr,
                 "{}: its last part has too few sentences to hide facts in: they are hidden in the included stories\n",
                 name);
    }
    options.texts = static_cast<int>(texts.size());
  }
  Fit fit(decoder, loaded.vocabulary, options, std::move(texts));
  if (!fit.abandoned().empty()) fmt::print(stderr, "begins anew: {} {}\n", fit.files().state, fit.abandoned());
  if (fit.resumed()) fmt::print(stderr, "goes on with {}\n", fit.files().state);

  const bool all = flags.table == "all", none = flags.table == "none";
  const auto rows = comparison_rows(fit.files(), loaded.model->hyper().positions() == PositionKind::kRotary, all);
  const int length = std::min(1024, options.tokens);
  std::unique_ptr<FitComparison> comparison;
  if (!none)
    comparison = std::make_unique<FitComparison>(decoder, loaded.vocabulary, evaluated, held,
                                                 static_cast<int>(flags.contexts), length);
  const auto speed = measure_speed(decoder);
  const double first = fit_seconds(speed, options, own, fit.state());
  const double last =
      none ? 0
           : table_seconds(speed, 3 * rows.size() + 1 - std::min(3 * rows.size(), fit.state().results.size()),
                           flags.contexts, length, static_cast<double>(held.size()));
  fmt::print(stderr, "{} texts of {} tokens{}: about {}{}\n", options.texts, thousands(options.tokens),
             own ? ", written by the model itself" : "", duration_text(first),
             none ? "" : fmt::format(", then {} for the table", duration_text(last)));

  StageBars bars;
  const auto stopped = [&] {
    bars.end();
    fmt::print(stderr, "stopped; the same command goes on ({})\n", fit.files().state);
    return kInterrupted;
  };
  const bool complete = fit.run([&](Fit::Stage stage, long long done, long long total) {
    return bars.update(stage_name(stage), "tokens", done, total);
  });
  if (!complete) return stopped();
  bars.end();
  if (!flags.json) {
    for (const auto& [path, use] : listed(fit.files()))
      if (std::filesystem::exists(path))
        fmt::print("{:9} {}  ({})\n", human_bytes(std::filesystem::file_size(path)), path, use);
    std::fflush(stdout);
  }
  if (comparison != nullptr && !measure_table(fit, *comparison, rows, bars)) return stopped();
  if (flags.json) {
    nlohmann::ordered_json out = {
        {"model", loaded.model->path()}, {"texts", options.texts}, {"tokens", options.tokens}};
    for (const auto& [path, use] : listed(fit.files())) out["files"].push_back(path);
    out["results"] = table_json(fit.state());
    fmt::print("{}\n", out.dump(2));
  } else if (comparison != nullptr) {
    print_table(fit.state(), *comparison, rows, name, flags.folder.empty());
  }
  fit.finish();
  return kOk;
}

}  // namespace

void add_fit(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("fit", "Make a model's files for methods that need some, and compare methods");
  command->footer(kFitFooter);
  const auto flags = std::make_shared<FitFlags>();
  flags->length = 0;
  command->add_option("-f,--file", flags->file, "text to fit to; -: standard input; default: the model writes texts")
      ->type_name("FILE");
  command->add_flag("--quick", flags->quick,
                    "only MODEL.profile, from 480 tokens of FILE or of included stories: seconds");
  command->add_option("--texts", flags->texts, "max number of texts")->type_name("N")->capture_default_str();
  command
      ->add_option("--length", flags->length,
                   "tokens of a text; default: 2048, or less if the trained context requires it")
      ->type_name("N");
  command->add_option("--folder", flags->folder, "folder of the files; default: the model's")->type_name("DIR");
  command->add_option("--table", flags->table, "methods to compare at the end: short, all or none")
      ->check(CLI::IsMember({"short", "all", "none"}))
      ->type_name("WHICH")
      ->capture_default_str();
  command->add_option("--contexts", flags->contexts, "texts with 4 questions each, for the table")
      ->type_name("N")
      ->capture_default_str();
  add_text_model_flags(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return run_fit(*flags); }; });
}

}  // namespace palimpsest::cli
