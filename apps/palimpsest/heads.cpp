// palimpsest heads: finds the heads that attend to distant tokens of a text; prints a list of the others for
// split=FILE.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval/far_attention.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kHeadsFooter =
    R"(Processes a text with a full cache and prints the heads with the lowest attention to tokens other than sinks
and recent ones (DuoAttention's streaming heads), as a file for split=FILE. --method duo uses the file
model.duo in the folder of model.gguf.

Examples:
  palimpsest heads -f book.txt -m model.gguf > model.duo
  palimpsest run -m model.gguf --method duo --budget 512
  palimpsest run -m model.gguf --method duo:split=heads.txt)";

struct HeadsFlags {
  ModelFlags model;
  std::optional<long long> threads;
  std::string file;
  long long tokens = 2048, sinks = 64, recent = 256;
  double part = 0.5;
  bool json = false;
};

int run_heads(const HeadsFlags& flags) {
  constexpr long long kMax = 1 << 20;
  if (flags.sinks < 0 || flags.recent < 1 || flags.sinks > kMax || flags.recent > kMax || flags.tokens > kMax)
    fail("--sinks {} --recent {} --tokens {}: give numbers of tokens up to {}, --recent at least 1", flags.sinks,
         flags.recent, flags.tokens, kMax);
  if (!(flags.part > 0 && flags.part < 1)) fail("--part {}: give a fraction between 0 and 1", flags.part);
  const TextModel loaded = load_text_model(flags.model);
  auto text = loaded.vocabulary->tokenize(read_text(flags.file, "the text"), true, true);
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(1LL, flags.tokens))));
  const Hyperparameters& hyper = loaded.model->hyper();
  Decoder decoder(loaded.model, threads_of(flags.threads, hyper));
  Progress bar("reading", "tokens");
  const auto shares = far_attention(decoder, text, static_cast<int>(flags.sinks), static_cast<int>(flags.recent),
                                    [&](long long done, long long total) {
                                      bar.update(done, total);
                                      return !interrupted();
                                    });
  bar.clear();
  if (interrupted()) return kInterrupted;
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t head) { return shares[head]; });
  order.resize(static_cast<std::size_t>(flags.part * static_cast<double>(order.size())));
  std::ranges::sort(order);
  const auto layer_of = [&](std::size_t i) { return hyper.geometry.layer_of(static_cast<int>(i)); };
  const auto head_of = [&](std::size_t i) { return hyper.geometry.kv_head_of(static_cast<int>(i)); };
  if (flags.json) {
    nlohmann::ordered_json out = {{"model", loaded.model->path()}, {"tokens", text.size()}};
    for (std::size_t i = 0; i < shares.size(); ++i)
      out["heads"].push_back({{"layer", layer_of(i)},
                              {"head", head_of(i)},
                              {"far", shares[i]},
                              {"streaming", std::ranges::binary_search(order, i)}});
    fmt::print("{}\n", out.dump(2));
    return kOk;
  }
  fmt::print("# streaming heads, by `palimpsest heads --tokens {} --sinks {} --recent {} --part {}`\n", text.size(),
             flags.sinks, flags.recent, flags.part);
  fmt::print("# layer  head             max weight beyond {} sinks and the newest {}, mean over queries\n", flags.sinks,
             flags.recent);
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const bool streaming = std::ranges::binary_search(order, i);
    fmt::print("{}{:5}  {:4}  {:9}  # {:.4f}\n", streaming ? "  " : "# ", layer_of(i), head_of(i),
               streaming ? "streaming" : "", shares[i]);
  }
  return kOk;
}

}  // namespace

void add_heads(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("heads", "Find streaming heads, for budgets per head (method duo)");
  command->footer(kHeadsFooter);
  const auto flags = std::make_shared<HeadsFlags>();
  command->add_option("-f,--file", flags->file, "text file; -: standard input")->type_name("FILE")->required();
  command->add_option("--tokens", flags->tokens, "max tokens of the text")->type_name("N")->capture_default_str();
  command->add_option("--sinks", flags->sinks, "number of sinks")->type_name("N")->capture_default_str();
  command->add_option("--recent", flags->recent, "number of recent tokens")->type_name("N")->capture_default_str();
  command->add_option("--part", flags->part, "fraction of the heads to list as streaming heads")
      ->type_name("P")
      ->capture_default_str();
  add_text_model_flags(*command, flags->model);
  add_threads_flag(*command, flags->threads);
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return run_heads(*flags); }; });
}

}  // namespace palimpsest::cli
