// palimpsest eval retention: which tokens of a text each layer and head holds at its end.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct RetentionFlags {
  ModelFlags model;
  MethodListFlags list;
  TextFlags text;
  ThreadFlags threads;
  long long bins = 64;
  bool json = false, positions = false;
};

std::vector<Position> kept_positions(const SlotTable& table) {
  std::vector<Position> out;
  for (const Position position : table.position())
    if (position != kNoPosition) out.push_back(position);
  std::ranges::sort(out);
  return out;
}

// The fraction of each bin's positions that a table holds.
std::vector<double> shares(const SlotTable& table, const std::vector<long long>& from, long long end) {
  std::vector<double> out(from.size());
  for (const Position position : table.position()) {
    if (position == kNoPosition) continue;
    const auto after = std::ranges::upper_bound(from, static_cast<long long>(position));
    out[static_cast<std::size_t>(after - from.begin() - 1)] += 1;
  }
  for (std::size_t i = 0; i < from.size(); ++i)
    out[i] /= static_cast<double>((i + 1 < from.size() ? from[i + 1] : end) - from[i]);
  return out;
}

int run_kept(const RetentionFlags& flags) {
  const auto model = load_model(flags.model);
  if (model->path().empty()) fail("a synthetic model has no vocabulary to read a text with: name a file with -m");
  const auto vocabulary = Vocabulary::load(model->path(), model->options().overrides);
  const std::vector<TokenText> texts = read_tokens(flags.text, *vocabulary);
  if (texts.size() != 1) fail("{} texts: this command takes one text (-f)", texts.size());
  const auto& tokens = texts.front().tokens;
  const auto end = static_cast<long long>(tokens.size());
  const StepThreads threads = threads_of(flags.threads, model->hyper());
  const auto list = method_list(flags.list, {model, vocabulary}, threads, end);
  const auto decoder = std::make_shared<Decoder>(model, threads);
  std::vector<long long> from;
  const long long bins = std::min(flags.bins, end);
  for (long long i = 0; i < bins; ++i) from.push_back(end * i / bins);

  nlohmann::json runs = nlohmann::json::array();
  for (const auto& method : list) {
    if (interrupted()) break;
    Session session(decoder, method.options);
    Progress bar(method.name, "tokens");
    session.prefill(tokens, [&](long long done, long long total) {
      bar.update(done, total);
      return !interrupted();
    });
    bar.clear();
    CacheUse cache_use(method.name, method.options);
    const Cache& cache = session.cache();
    cache_use.add(cache, cache.evicted());
    nlohmann::json heads = nlohmann::json::array();
    if (!flags.json)
      fmt::print("{}: {} of {} tokens, {} evicted; each column {} tokens\n", method.name, thousands(cache.occupied()),
                 thousands(end), thousands(cache_use.evicted), (end + bins - 1) / bins);
    for (int head = 0; head < cache.geometry().heads(); ++head) {
      const int layer = cache.geometry().layer_of(head), of_layer = cache.geometry().kv_head_of(head);
      const auto share = shares(cache.table(cache.table_of(head)), from, end);
      heads.push_back({{"layer", layer}, {"head", of_layer}, {"share", share}});
      if (flags.positions) heads.back()["kept"] = kept_positions(cache.table(cache.table_of(head)));
      if (flags.json) continue;
      std::string line;
      for (const double each : share) line += " .:-=+*#@"[static_cast<std::size_t>(std::min(8.0, each * 8 + 0.5))];
      fmt::print("{:>3}.{:<2} |{}|\n", layer, of_layer, line);
    }
    nlohmann::json run = as_json(cache_use);
    run["heads"] = heads;
    runs.push_back(run);
    warn_of_nothing_evicted(cache_use);
  }
  if (flags.json)
    fmt::print("{}\n", nlohmann::json{{"task", "retention"},
                                      {"model", model_name(*model)},
                                      {"file", texts.front().file},
                                      {"tokens", end},
                                      {"from", from},
                                      {"runs", runs}}
                           .dump(2));
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_retention(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<RetentionFlags>();
  CLI::App* command = eval.add_subcommand("retention", "Map of the tokens that each layer and head keeps");
  command->alias("kept");
  add_text_model_flags(*command, flags->model);
  add_text_flags(*command, flags->text);
  add_method_list(*command, flags->list, {"streaming:budget=256"});
  add_thread_flags(*command, flags->threads);
  command->add_option("--bins", flags->bins, "columns of the map")->check(CLI::Range(1, 4096))->capture_default_str();
  add_json_flag(*command, flags->json);
  command->add_flag("--list", flags->positions, "with --json: each head's kept positions, too")->group("Output");
  command->callback([flags, &action] { action = [flags] { return run_kept(*flags); }; });
}

}  // namespace palimpsest::cli
