// palimpsest eval stream: memory, speed and text quality over a long generated stream.
#include "palimpsest/eval/stream.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/chart.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/sampling_flags.h"
#include "palimpsest/system.h"
#include "palimpsest/text/text_stream.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kStreamMethod = "streaming:budget=256";

struct StreamFlags {
  ModelFlags model;
  CacheFlags cache;
  SamplingFlags sampling;
  StreamOptions stream;
  ThreadFlags threads;
  std::string prompt, plot, text;
  bool json = false, no_judge = false;
};

constexpr double kKib = 1024;

double ratio(const std::vector<double>& tenths) {
  return tenths.empty() ? std::nan("") : tenths.back() / tenths.front();
}

// Mean of a field over the windows of the first or the last tenth of the stream.
double mean_of_tenth(const StreamResult& result, bool last, double StreamWindow::*field) {
  const std::size_t n = std::max<std::size_t>(1, result.windows.size() / 10);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += result.windows[last ? result.windows.size() - 1 - i : i].*field;
  return sum / static_cast<double>(n);
}

nlohmann::json as_json(const StreamResult& result, const Model& model, const SessionOptions& options,
                       std::uint32_t seed) {
  nlohmann::json windows = nlohmann::json::array();
  for (const auto& w : result.windows)
    windows.push_back({{"from", w.from},
                       {"to", w.to},
                       {"nll", w.nll},
                       {"full_cache_nll", finite(w.full_cache_nll)},
                       {"distinct_4grams", w.distinct},
                       {"ms_mean", w.ms_mean},
                       {"ms_median", w.ms_median},
                       {"resident_bytes", w.resident},
                       {"cache_bytes", w.cache_bytes}});
  return {{"model", model_name(model)},
          {"method", spell_out(options.method)},
          {"protected", spell_protection(options.method)},
          {"seed", seed},
          {"tokens", result.tokens},
          {"complete", result.complete},
          {"evicted", result.evicted},
          {"cache_bytes", result.cache_bytes},
          {"cache_bytes_peak", result.cache_bytes_peak},
          {"resident_settled_bytes", result.resident_settled},
          {"resident_most_after_bytes", result.resident_after},
          {"growth_bytes", result.growth()},
          {"tpot_ms_by_tenth", {{"mean", result.tenth_mean_ms}, {"median", result.tenth_median_ms}}},
          {"windows", windows}};
}

void print_report(const StreamResult& result, const StreamOptions& options) {
  fmt::print("{:>17}  {:>9}  {:>9}  {:>10}  {:>10}  {:>8}  {:>12}\n", "tokens", "mean ms", "median ms", "perplexity",
             "full ppl", "distinct", "resident KiB");
  const std::size_t windows = result.windows.size();
  for (std::size_t tenth = 0; tenth < 10 && tenth < result.tenth_mean_ms.size(); ++tenth) {
    const std::size_t from = windows * tenth / 10, to = std::max(from + 1, windows * (tenth + 1) / 10);
    double nll = 0, fresh = 0, distinct = 0;
    for (std::size_t i = from; i < to; ++i) {
      nll += result.windows[i].nll / static_cast<double>(to - from);
      fresh += result.windows[i].full_cache_nll / static_cast<double>(to - from);
      distinct += result.windows[i].distinct / static_cast<double>(to - from);
    }
    fmt::print("{:>8}-{:>8}  {:>9.4f}  {:>9.4f}  {:>10.3f}  {:>10.3f}  {:>8.3f}  {:>12}\n",
               thousands(result.windows[from].from), thousands(result.windows[to - 1].to), result.tenth_mean_ms[tenth],
               result.tenth_median_ms[tenth], std::exp(nll), std::exp(fresh), distinct,
               thousands(result.windows[to - 1].resident / 1024));
  }
  fmt::print("resident memory after {} tokens: {} KiB; max after that: {} KiB; growth {} KiB\n",
             thousands(options.settled), thousands(result.resident_settled / 1024),
             thousands(result.resident_after / 1024), thousands(result.growth() / 1024));
  fmt::print("time per token, last tenth over first: {:.3f} (means), {:.3f} (medians)\n", ratio(result.tenth_mean_ms),
             ratio(result.tenth_median_ms));
  fmt::print(
      "perplexity when sampled, first tenth -> last: {:.3f} -> {:.3f}; evaluated with an empty full cache: {:.3f} -> "
      "{:.3f}\n",
      std::exp(mean_of_tenth(result, false, &StreamWindow::nll)),
      std::exp(mean_of_tenth(result, true, &StreamWindow::nll)),
      std::exp(mean_of_tenth(result, false, &StreamWindow::full_cache_nll)),
      std::exp(mean_of_tenth(result, true, &StreamWindow::full_cache_nll)));
  fmt::print("{} tokens, {} evicted, cache and tables {} (peak {})\n", thousands(result.tokens),
             thousands(result.evicted), human_bytes(result.cache_bytes), human_bytes(result.cache_bytes_peak));
}

Chart chart_of(const StreamResult& result, const std::string& title, const std::string& method) {
  ChartPanel quality{.title = "Perplexity of the text under the model",
                     .x_label = "tokens",
                     .y_label = "perplexity",
                     .from_zero = true,
                     .series = {},
                     .marks = {}};
  quality.series = {{"when sampled", {}, false}, {"evaluated with an empty full cache", {}, false}};
  ChartPanel repeats{.title = "Distinct 4-grams per window",
                     .x_label = "tokens",
                     .y_label = "share",
                     .from_zero = true,
                     .series = {{"distinct", {}, false}},
                     .marks = {}};
  ChartPanel speed{.title = "Time per token",
                   .x_label = "tokens",
                   .y_label = "ms",
                   .from_zero = true,
                   .series = {{"median of a window", {}, false}},
                   .marks = {}};
  ChartPanel memory{.title = "Resident memory",
                    .x_label = "tokens",
                    .y_label = "MiB",
                    .from_zero = true,
                    .series = {{"resident", {}, false}},
                    .marks = {}};
  for (const auto& w : result.windows) {
    const auto x = static_cast<double>(w.to);
    quality.series[0].points.emplace_back(x, std::exp(w.nll));
    quality.series[1].points.emplace_back(x, std::exp(w.full_cache_nll));
    repeats.series[0].points.emplace_back(x, w.distinct);
    speed.series[0].points.emplace_back(x, w.ms_median);
    memory.series[0].points.emplace_back(x, static_cast<double>(w.resident) / kKib / kKib);
  }
  return {.title = title, .subtitle = method, .panels = {quality, repeats, speed, memory}};
}

int run_stream_command(const StreamFlags& flags) {
  if (!flags.plot.empty()) check_chart_path(flags.plot);
  const auto model = load_model(flags.model);
  std::shared_ptr<Vocabulary> vocabulary;
  if (!model->path().empty()) vocabulary = Vocabulary::load(model->path(), model->options().overrides);
  if (!vocabulary && !flags.prompt.empty()) fail("a synthetic model has no vocabulary: leave out --prompt");
  const TokenId begin = vocabulary ? vocabulary->bos() : 0;
  std::vector<TokenId> prompt;
  if (vocabulary) prompt = vocabulary->tokenize(flags.prompt, /*add_bos=*/true, /*special=*/false);
  if (prompt.empty() && begin >= 0) prompt.push_back(begin);

  const SessionOptions options = session_options(flags.cache, kStreamMethod, model->hyper(), vocabulary.get(),
                                                 flags.stream.tokens + static_cast<long long>(prompt.size()));
  const auto decoder = std::make_shared<Decoder>(model, threads_of(flags.threads, model->hyper()));
  Session session(decoder, options);
  std::unique_ptr<Session> judge;
  if (!flags.no_judge) {
    SessionOptions full = options;
    full.method = parse_method("full");
    judge = std::make_unique<Session>(decoder, full);
  }
  Sampler sampler(sampler_options(flags.sampling, vocabulary.get()), vocabulary.get(), model->hyper().vocabulary);
  std::FILE* text = nullptr;
  if (!flags.text.empty()) {
    if (!vocabulary) fail("a synthetic model has no vocabulary: leave out --text");
    text = std::fopen(flags.text.c_str(), "wb");
    if (text == nullptr) fail("{}: cannot be written", flags.text);
  }
  std::optional<TextStream> words;
  if (text != nullptr) words.emplace(*vocabulary);
  const auto write = [&](const std::string& piece) { std::fwrite(piece.data(), 1, piece.size(), text); };
  Progress bar("stream", "tokens");
  const StreamResult result = run_stream(
      session, sampler, prompt, flags.stream, judge.get(), begin,
      [&](TokenId token) {
        if (words) write(words->put(token));
      },
      [&](long long done, long long total) {
        bar.update(done, total);
        return !interrupted();
      });
  bar.clear();
  if (words) write(words->finish());
  if (text != nullptr && std::fclose(text) != 0) fail("{}: writing failed", flags.text);
  if (result.windows.empty()) return kInterrupted;

  if (flags.json)
    fmt::print("{}\n", as_json(result, *model, options, sampler.seed()).dump(2));
  else
    print_report(result, flags.stream);
  if (!flags.json && options.method.evicts()) fmt::print("protected: {}\n", spell_protection(options.method));
  if (!flags.plot.empty()) {
    write_chart(flags.plot,
                chart_of(result, fmt::format("{} tokens of {}", thousands(result.tokens), model_name(*model)),
                         spell_short(options.method)));
    if (!flags.json) fmt::print("plot: {}\n", flags.plot);
  }
  return result.complete ? kOk : kInterrupted;
}

}  // namespace

void add_eval_stream(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<StreamFlags>();
  CLI::App* command = eval.add_subcommand(
      "stream", "Generate a long stream; report memory, time per token and text quality per window");
  add_model_flags(*command, flags->model);
  command->add_option("-p,--prompt", flags->prompt, "prompt; default: BOS only");
  command->add_option("--tokens", flags->stream.tokens, "tokens to generate")->check(CLI::PositiveNumber);
  command->add_option("--windows", flags->stream.windows, "number of windows in the report")
      ->check(CLI::PositiveNumber);
  command->add_option("--settled", flags->stream.settled, "first token for the memory growth")
      ->check(CLI::NonNegativeNumber);
  add_cache_flags(*command, flags->cache, kStreamMethod);
  add_sampling_flags(*command, flags->sampling);
  add_grammar_flags(*command, flags->sampling);
  add_thread_flags(*command, flags->threads);
  command->add_flag("--no-judge", flags->no_judge, "do not evaluate each window with a full cache");
  command->add_option("--text", flags->text, "write the text to this file");
  command->add_option("--plot", flags->plot, "write the curves to this JSON file; bench/plot.py draws it");
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_stream_command(*flags); }; });
}

}  // namespace palimpsest::cli
