// palimpsest eval perplexity: one pass over each text, for several methods.
#include "palimpsest/eval/perplexity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval/chart.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct PerplexityFlags {
  ModelFlags model;
  MethodListFlags list;
  TextFlags text;
  ThreadFlags threads;
  long long bin = 0, block = 128, resamples = 2000, limit = 0, prompt = 0, window = 0;
  bool json = false, linear = false;
  std::string plot;
};

struct Run {
  NamedMethod method;
  CacheUse cache_use;
  std::vector<Perplexity> texts = {};
  Perplexity all = {};
  Interval difference = {};  // to the first method, nats per token
};

// Paired difference of two methods on the same tokens. Blocks do not cross text boundaries.
Interval difference(const Run& first, const Run& other, const PerplexityFlags& flags) {
  std::vector<TextBlock> blocks;
  for (std::size_t i = 0; i < other.texts.size(); ++i) {
    const auto &a = first.texts[i].losses, &b = other.texts[i].losses;
    const std::size_t both = std::min(a.size(), b.size());  // one may have been interrupted
    const auto more = difference_blocks(std::span(a).first(both), std::span(b).first(both), flags.block);
    blocks.insert(blocks.end(), more.begin(), more.end());
  }
  return bootstrap(blocks, static_cast<int>(flags.resamples));
}

nlohmann::json as_json(const Run& run) {
  nlohmann::json out = as_json(run.cache_use), curve = nlohmann::json::array(), texts = nlohmann::json::array();
  for (const auto& bin : run.all.curve)
    curve.push_back({{"from", bin.from},
                     {"to", bin.to},
                     {"tokens", bin.tokens},
                     {"nll", bin.nll},
                     {"perplexity", finite(std::exp(bin.nll))}});
  for (const auto& text : run.texts)
    texts.push_back({{"predicted", text.predicted},
                     {"nll", text.nll},
                     {"perplexity", finite(text.value())},
                     {"evicted", text.evicted}});
  out.update({{"predicted", run.all.predicted},
              {"complete", run.all.complete},
              {"nll", run.all.nll},
              {"nll_error", run.all.nll_error},
              {"perplexity", finite(run.all.value())},
              {"difference",
               {{"nll", finite(run.difference.mean)},
                {"low", finite(run.difference.low)},
                {"high", finite(run.difference.high)},
                {"blocks", run.difference.blocks}}},
              {"seconds", run.all.seconds},
              {"tokens_per_second", run.all.tokens_per_second()},
              {"texts", texts},
              {"curve", curve}});
  return out;
}

// The curve's mean over the last tenth of the longest text: the steady state.
double late_nll(const Perplexity& result) {
  const long long end = result.curve.empty() ? 0 : result.curve.back().to;
  double sum = 0;
  long long count = 0;
  for (const auto& bin : result.curve)
    if (bin.to > end - end / 10) {
      sum += bin.nll * static_cast<double>(bin.tokens);
      count += bin.tokens;
    }
  return count == 0 ? result.nll : sum / static_cast<double>(count);
}

void print_table(const std::vector<Run>& runs, const PerplexityFlags& flags) {
  std::size_t width = 6;
  for (const auto& run : runs) width = std::max(width, run.method.name.size());
  fmt::print("{:<{}}  {:>10}  {:>9}  {:>17}  {:>25}  {:>9}  {:>10}  {:>10}  {:>9}\n", "method", width, "perplexity",
             "last 10%", "nll/token", "nll - first (95%)", "predicted", "evicted", "cache", "tokens/s");
  for (const auto& run : runs) {
    const auto& r = run.all;
    std::string difference = &run == &runs.front() ? "" : fmt::format("{:+.4f}", run.difference.mean);
    if (&run != &runs.front() && std::isfinite(run.difference.low))
      difference += fmt::format(" [{:+.4f}, {:+.4f}]", run.difference.low, run.difference.high);
    fmt::print("{:<{}}  {:>10.4g}  {:>9.4g}  {:>8.4f} +-{:.4f}  {:>25}  {:>9}  {:>10}  {:>10}  {:>9.0f}{}\n",
               run.method.name, width, r.value(), std::exp(late_nll(r)), r.nll, r.nll_error, difference,
               thousands(r.predicted), thousands(r.evicted), human_bytes(r.cache_bytes_peak), r.tokens_per_second(),
               r.complete ? "" : "  (interrupted)");
  }
  const long long blocks = runs.empty() ? 0 : runs.front().difference.blocks;
  if (runs.size() > 1 && blocks < kMinBlocks)
    fmt::print("no intervals: the texts have {} blocks of {} tokens; at least {} are needed (--block)\n", blocks,
               flags.block, kMinBlocks);
}

Chart chart_of(const std::vector<Run>& runs, const Model& model, const PerplexityFlags& flags, const std::string& text,
               long long bin, int chunk) {
  ChartPanel panel;
  panel.x_label = "token of the text";
  panel.y_label = fmt::format("perplexity of {} tokens", thousands(bin));
  panel.log_y = !flags.linear;
  for (const auto& run : runs) {
    ChartSeries series{run.method.name, {}, /*dashed=*/panel.series.size() >= 2};  // lines often overlap
    for (const auto& each : run.all.curve)
      series.points.emplace_back(static_cast<double>(each.from + each.to) / 2, std::exp(each.nll));
    panel.series.push_back(std::move(series));
  }
  const int context = model.hyper().trained_context;
  if (context > 0) panel.marks.push_back({static_cast<double>(context), fmt::format("trained context {}", context)});
  return {.title = fmt::format("Perplexity of {} over {}", model_name(model), text),
          .subtitle = fmt::format("{} tokens, {} cache, chunks of {}", thousands(runs.front().all.predicted),
                                  name_of(cache_types_of(flags.list.cache)), chunk),
          .panels = {panel}};
}

void print_texts(const std::vector<TokenText>& texts, const Vocabulary& vocabulary) {
  constexpr std::size_t kMax = 8;
  for (std::size_t i = 0; i < std::min(kMax, texts.size()); ++i) {
    const TokenText& text = texts[i];
    fmt::print("{}: {} of {} tokens ({} bytes{}){}\n", text.file, thousands(static_cast<long long>(text.tokens.size())),
               thousands(text.available), thousands(static_cast<long long>(text.bytes)),
               text.done.empty() ? "" : fmt::format("; {}", fmt::join(text.done, "; ")),
               text.tokens.front() == vocabulary.bos() ? ", BOS first" : "");
  }
  if (texts.size() > kMax) fmt::print("... and {} more texts\n", texts.size() - kMax);
  std::fflush(stdout);
}

// Windows of a text, each as long as `window`, as texts of their own; the rest is left out. If the text begins with
// BOS, each window does, instead of its own first token.
std::vector<TokenText> windows_of(const std::vector<TokenText>& texts, long long window, TokenId bos) {
  std::vector<TokenText> out;
  const auto size = static_cast<std::size_t>(window);
  for (const TokenText& text : texts)
    for (std::size_t at = 0; at + size <= text.tokens.size(); at += size) {
      TokenText& one = out.emplace_back(text);
      const auto begin = text.tokens.begin() + static_cast<std::ptrdiff_t>(at);
      one.tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(size));
      if (text.tokens.front() == bos) one.tokens.front() = bos;
    }
  if (out.empty()) fail("--window {}: no text has as many tokens; give a smaller one or a longer text", window);
  return out;
}

int run_perplexity(const PerplexityFlags& flags) {
  if (flags.window > 0 && flags.prompt > 0)
    fail("--window with --prompt: a window's first half is read and not counted; give one of the two");
  const long long first = flags.window / 2;
  if (!flags.plot.empty()) check_chart_path(flags.plot);
  const auto model = load_model(flags.model);
  if (model->path().empty()) fail("a synthetic model has no vocabulary to read a text with: name a file with -m");
  const auto vocabulary = Vocabulary::load(model->path(), model->options().overrides);
  std::vector<TokenText> texts = read_tokens(flags.text, *vocabulary);
  if (flags.window > 0) texts = windows_of(texts, flags.window, vocabulary->bos());
  if (flags.limit > 0 && texts.size() > static_cast<std::size_t>(flags.limit))
    texts.resize(static_cast<std::size_t>(flags.limit));
  long long longest = 0, total = 0;
  for (const TokenText& text : texts) {
    longest = std::max(longest, static_cast<long long>(text.tokens.size()) - 1);
    total += static_cast<long long>(text.tokens.size()) - 1 - flags.prompt - first;
  }
  const long long bin = flags.bin > 0 ? flags.bin : round_bin(longest);
  const StepThreads threads = threads_of(flags.threads, model->hyper());
  const auto list = method_list(flags.list, {model, vocabulary}, threads, longest);
  const auto decoder = std::make_shared<Decoder>(model, threads);

  for (const auto& method : list)
    check_perplexity(MethodPlan(method.options.method, plan_target(*decoder, method.options)).method(), flags.prompt);
  for (const auto& method : list)
    check_perplexity(MethodPlan(method.options.method, plan_target(*decoder, method.options)).method(), flags.prompt);
  if (!flags.json) print_texts(texts, *vocabulary);
  std::vector<Run> runs;
  for (const auto& method : list) {
    if (interrupted()) break;
    Session session(decoder, method.options);
    Progress bar(method.name, "tokens");
    Run& run = runs.emplace_back(Run{.method = method, .cache_use = CacheUse(method.name, method.options)});
    run.cache_use.set_files(*decoder, method.options);
    long long before = 0;
    for (const TokenText& text : texts) {
      if (interrupted()) break;
      run.texts.push_back(perplexity(
          session, text.tokens, bin,
          [&](long long done, long long) {
            bar.update(before + done, total);
            return !interrupted();
          },
          flags.prompt, first));
      before += run.texts.back().predicted;
      run.cache_use.add(session.cache(), run.texts.back().evicted);
    }
    run.all = merge_perplexities(run.texts);
    run.all.complete = run.all.complete && run.texts.size() == texts.size();
    run.difference = difference(runs.front(), run, flags);
  }
  if (flags.json) {
    nlohmann::json files = nlohmann::json::array();
    for (const TokenText& text : texts)
      files.push_back({{"file", text.file},
                       {"bytes", text.bytes},
                       {"tokens", text.tokens.size()},
                       {"tokens_of_file", text.available},
                       {"bos", text.tokens.front() == vocabulary->bos()},
                       {"cleaning", text.done}});
    nlohmann::json out = {{"task", "perplexity"},
                          {"model", model_name(*model)},
                          {"files", files},
                          {"tokens", total + static_cast<long long>(texts.size()) * (1 + flags.prompt + first)},
                          {"prompt", flags.prompt},
                          {"window", flags.window},
                          {"bin", bin},
                          {"block", flags.block},
                          {"runs", nlohmann::json::array()}};
    for (const auto& run : runs) out["runs"].push_back(as_json(run));
    fmt::print("{}\n", out.dump(2));
  } else {
    print_table(runs, flags);
    fmt::print("{}\n", protection_line(list));
  }
  for (const auto& run : runs) warn_of_nothing_evicted(run.cache_use);
  if (!flags.plot.empty()) {
    const std::string name = texts.size() > 1 ? fmt::format("{} texts", texts.size())
                                              : std::filesystem::path(texts.front().file).filename().string();
    write_chart(flags.plot, chart_of(runs, *model, flags, name, bin, list.front().options.chunk));
    if (!flags.json) fmt::print("plot: {}\n", flags.plot);
  }
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_perplexity(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command =
      eval.add_subcommand("perplexity", "Perplexity of texts, by position, and differences between methods");
  add_text_model_flags(*command, flags->model);
  add_text_flags(*command, flags->text);
  add_method_list(*command, flags->list, {"full"});
  add_thread_flags(*command, flags->threads);
  command->add_option("--bin", flags->bin, "tokens per point of the curve; 0: about 100 points")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--prompt", flags->prompt,
                   "tokens at the start of each text that are read as a prompt, compressed, and not predicted; the "
                   "others are read one by one. Needed by methods that evict at a prompt's end")
      ->type_name("TOKENS")
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--window", flags->window,
                   "cut the texts into windows of so many tokens, each read by itself, and count the second half of "
                   "each, as llama-perplexity does with -c; 0: whole texts")
      ->type_name("TOKENS")
      ->check(CLI::Range(4, 1 << 24));
  command->add_option("--limit", flags->limit, "max number of texts or windows; 0: all")->check(CLI::NonNegativeNumber);
  command->add_option("--block", flags->block, "tokens per bootstrap block of the paired differences")
      ->check(CLI::PositiveNumber);
  command->add_option("--resamples", flags->resamples, "bootstrap resamples")->check(CLI::Range(100, 1000000));
  command->add_option("--plot", flags->plot, "write the curves to this JSON file; bench/plot.py draws it");
  command->add_flag("--linear", flags->linear, "linear instead of logarithmic perplexity axis of --plot");
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_perplexity(*flags); }; });
}

}  // namespace palimpsest::cli
