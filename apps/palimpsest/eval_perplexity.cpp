// palimpsest eval perplexity: one pass over a long text, several methods side by side.
#include "palimpsest/eval/perplexity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/svg_chart.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct Flags {
  ModelFlags model;
  MethodListFlags list;
  TextFlags text;
  std::optional<long long> threads;
  long long bin = 0;
  bool json = false, linear = false;
  std::string plot;
};

struct Run {
  NamedMethod method;
  Perplexity result;
};

nlohmann::json as_json(const Run& run) {
  nlohmann::json curve = nlohmann::json::array();
  for (const auto& bin : run.result.curve)
    curve.push_back({{"from", bin.from}, {"to", bin.to}, {"nll", bin.nll}, {"perplexity", finite(std::exp(bin.nll))}});
  return {{"name", run.method.name},
          {"method", spell_out(run.method.options.method)},
          {"protected", spell_protection(run.method.options.method)},
          {"predicted", run.result.predicted},
          {"complete", run.result.complete},
          {"nll", run.result.nll},
          {"nll_error", run.result.nll_error},
          {"perplexity", finite(run.result.value())},
          {"seconds", run.result.seconds},
          {"tokens_per_second", run.result.tokens_per_second()},
          {"evicted", run.result.evicted},
          {"cache_bytes", run.result.cache_bytes},
          {"cache_bytes_peak", run.result.cache_bytes_peak},
          {"curve", curve}};
}

// The curve's mean over the last tenth of the text: what a stream settles at.
double late_nll(const Perplexity& result) {
  double sum = 0;
  long long count = 0;
  for (const auto& bin : result.curve)
    if (bin.to > result.predicted - result.predicted / 10) {
      sum += bin.nll * static_cast<double>(bin.to - bin.from);
      count += bin.to - bin.from;
    }
  return count == 0 ? result.nll : sum / static_cast<double>(count);
}

void print_table(const std::vector<Run>& runs) {
  std::size_t width = 6;
  for (const auto& run : runs) width = std::max(width, run.method.name.size());
  fmt::print("{:<{}}  {:>10}  {:>9}  {:>17}  {:>10}  {:>10}  {:>10}  {:>9}\n", "method", width, "perplexity",
             "last 10%", "nll/token", "predicted", "evicted", "cache", "tokens/s");
  for (const auto& run : runs) {
    const auto& r = run.result;
    fmt::print("{:<{}}  {:>10.4g}  {:>9.4g}  {:>8.4f} +-{:.4f}  {:>10}  {:>10}  {:>10}  {:>9.0f}{}\n", run.method.name,
               width, r.value(), std::exp(late_nll(r)), r.nll, r.nll_error, thousands(r.predicted),
               thousands(r.evicted), human_bytes(r.cache_bytes_peak), r.tokens_per_second(),
               r.complete ? "" : "  (interrupted)");
  }
}

Chart chart_of(const std::vector<Run>& runs, const Model& model, const Flags& flags, long long bin, int chunk) {
  ChartPanel panel;
  panel.x_label = "token of the text";
  panel.y_label = fmt::format("perplexity of {} tokens", thousands(bin));
  panel.log_y = !flags.linear;
  for (const auto& run : runs) {
    ChartSeries series{run.method.name, {}, /*dashed=*/panel.series.size() >= 2};  // lines often lie on one another
    for (const auto& each : run.result.curve)
      series.points.emplace_back(static_cast<double>(each.from + each.to) / 2, std::exp(each.nll));
    panel.series.push_back(std::move(series));
  }
  const int context = model.hyper().trained_context;
  if (context > 0) panel.marks.push_back({static_cast<double>(context), fmt::format("trained context {}", context)});
  const auto slash = flags.text.file.find_last_of('/');
  return {.title = fmt::format("Perplexity of {} over {}", model_name(model),
                               slash == std::string::npos ? flags.text.file : flags.text.file.substr(slash + 1)),
          .subtitle = fmt::format("{} tokens, {} cache, read in chunks of {}", thousands(runs.front().result.predicted),
                                  flags.list.cache.cache_type, chunk),
          .panels = {panel}};
}

int run_perplexity(const Flags& flags) {
  if (!flags.plot.empty()) check_svg_path(flags.plot);
  const auto model = load_model(flags.model);
  if (model->path().empty()) fail("a synthetic model has no vocabulary to read a text with: name a file with -m");
  const auto vocabulary = Vocabulary::load(model->path());
  const TokenText text = read_tokens(flags.text, *vocabulary);
  const auto predicted = static_cast<long long>(text.tokens.size()) - 1;
  const long long bin = flags.bin > 0 ? flags.bin : round_bin(predicted);
  const auto list = method_list(flags.list, model->hyper(), predicted);
  const auto decoder = std::make_shared<Decoder>(model, threads_of(flags.threads, model->hyper()));

  if (!flags.json) {
    fmt::print("{}: {} of {} tokens ({} bytes{}){}\n", flags.text.file, thousands(predicted + 1),
               thousands(text.available), thousands(static_cast<long long>(text.bytes)),
               text.done.empty() ? "" : fmt::format("; {}", fmt::join(text.done, "; ")),
               text.tokens.front() == vocabulary->bos() ? ", BOS first" : "");
    std::fflush(stdout);
  }
  std::vector<Run> runs;
  for (const auto& method : list) {
    if (interrupted()) break;
    Session session(decoder, method.options);
    Progress bar(method.name, "tokens");
    const auto tick = [&](int done, int total) {
      bar.update(done, total);
      return !interrupted();
    };
    runs.push_back({method, perplexity(session, text.tokens, bin, tick)});
  }
  if (flags.json) {
    nlohmann::json out = {{"model", model_name(*model)},
                          {"file", flags.text.file},
                          {"bytes", text.bytes},
                          {"tokens", text.tokens.size()},
                          {"tokens_of_file", text.available},
                          {"bos", text.tokens.front() == vocabulary->bos()},
                          {"cleaning", text.done},
                          {"cache_type", flags.list.cache.cache_type},
                          {"bin", bin},
                          {"runs", nlohmann::json::array()}};
    for (const auto& run : runs) out["runs"].push_back(as_json(run));
    fmt::print("{}\n", out.dump(2));
  } else {
    print_table(runs);
    fmt::print("{}\n", protection_line(list));
  }
  if (!flags.plot.empty()) {
    write_svg(flags.plot, chart_of(runs, *model, flags, bin, list.front().options.chunk));
    if (!flags.json) fmt::print("plot: {}\n", flags.plot);
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_perplexity(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = eval.add_subcommand("perplexity", "The loss of every token of a long text, and where it rises");
  add_model_flags(*command, flags->model);
  add_text_flags(*command, flags->text);
  add_method_list(*command, flags->list, {"full"});
  add_threads_flag(*command, flags->threads);
  command->add_option("--bin", flags->bin, "tokens in one point of the curve; 0: about a hundred points")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--plot", flags->plot, "write the curves as SVG to this file");
  command->add_flag("--linear", flags->linear, "plot perplexity on a linear axis, not a logarithmic one");
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_perplexity(*flags); }; });
}

}  // namespace palimpsest::cli
