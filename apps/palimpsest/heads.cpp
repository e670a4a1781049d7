// palimpsest heads: measures heads on a text and prints a file for split=FILE: the streaming heads, or each head's
// share of the budget. Or writes their mean queries for policy triattention.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/query_centres.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/eval/far_attention.h"
#include "palimpsest/eval/head_files.h"
#include "palimpsest/eval/head_profile.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kHeadsFooter =
    R"(Processes a text with a full cache and prints the heads with the lowest attention to tokens other than sinks
and recent ones (DuoAttention's streaming heads), as a file for split=FILE. --method duo uses the file
model.duo in the folder of model.gguf. With --profile: each head's share of the budget, by the tokens that the
heads look at to repeat the text (KVzip's scores); split=profile uses model.profile. With
--centres: mean queries, which --method triattention reads from model.centres; give it 50,000 tokens or more.

Examples:
  palimpsest heads -f book.txt -m model.gguf > model.duo
  palimpsest run -m model.gguf --method duo --budget 512
  palimpsest run -m model.gguf --method duo:split=heads.txt
  palimpsest heads -f book.txt -m model.gguf --profile > model.profile
  palimpsest run -m model.gguf --method snapkv:split=profile
  palimpsest heads -f book.txt -m model.gguf --tokens 100000 --centres model.centres)";

struct HeadsFlags {
  ModelFlags model;
  ThreadFlags threads;
  std::string file, centres;
  long long tokens = 2048, sinks = 64, recent = 256;
  double part = 0.5, keep = 0.125;
  bool profile = false, json = false;
};

using OnProgress = std::function<bool(long long done, long long total)>;

int print_streaming(const HeadsFlags& flags, const TextModel& loaded, Decoder& decoder, std::span<const TokenId> text,
                    const OnProgress& progress) {
  const HeadGeometry& geometry = loaded.model->hyper().geometry;
  const auto shares =
      far_attention(decoder, text, static_cast<int>(flags.sinks), static_cast<int>(flags.recent), progress);
  if (interrupted()) return kInterrupted;
  const std::vector<std::size_t> order = streaming_heads(shares, flags.part);
  if (flags.json) {
    nlohmann::ordered_json out = {{"model", loaded.model->path()}, {"tokens", text.size()}};
    for (std::size_t i = 0; i < shares.size(); ++i)
      out["heads"].push_back({{"layer", geometry.layer_of(static_cast<int>(i))},
                              {"head", geometry.kv_head_of(static_cast<int>(i))},
                              {"far", shares[i]},
                              {"streaming", std::ranges::binary_search(order, i)}});
    fmt::print("{}\n", out.dump(2));
    return kOk;
  }
  fmt::print(
      "{}",
      streaming_text(
          geometry, fingerprint(*loaded.model),
          fmt::format("streaming heads, by `palimpsest heads --tokens {} --sinks {} --recent {} --part {}`",
                      text.size(), flags.sinks, flags.recent, flags.part),
          fmt::format("max weight beyond {} sinks and the newest {}, mean over queries", flags.sinks, flags.recent),
          shares, order));
  return kOk;
}

int print_profile(const HeadsFlags& flags, const TextModel& loaded, Decoder& decoder, std::span<const TokenId> text,
                  const OnProgress& progress) {
  const HeadGeometry& geometry = loaded.model->hyper().geometry;
  const auto shares = head_profile(decoder, text, repeat_instruction(*loaded.vocabulary), flags.keep, progress);
  if (interrupted()) return kInterrupted;
  if (!flags.json) {
    fmt::print("{}",
               profile_text(geometry, fingerprint(*loaded.model),
                            fmt::format("shares of a budget, by `palimpsest heads --profile --tokens {} --keep {}`",
                                        text.size(), flags.keep),
                            shares));
    return kOk;
  }
  nlohmann::ordered_json out = {{"model", loaded.model->path()}, {"tokens", text.size()}};
  for (std::size_t i = 0; i < shares.size(); ++i)
    out["heads"].push_back({{"layer", geometry.layer_of(static_cast<int>(i))},
                            {"head", geometry.kv_head_of(static_cast<int>(i))},
                            {"share", shares[i]}});
  fmt::print("{}\n", out.dump(2));
  return kOk;
}

int write_centres(const HeadsFlags& flags, const TextModel& loaded, Decoder& decoder, std::span<const TokenId> text,
                  const OnProgress& progress) {
  const auto weights = query_centres(decoder, text, progress);
  if (interrupted()) return kInterrupted;
  write_query_centres(flags.centres, *loaded.model, weights);
  fmt::print(stderr, "{}: the mean queries of {} tokens\n", flags.centres, text.size());
  return kOk;
}

int run_heads(const HeadsFlags& flags) {
  constexpr long long kMax = 1 << 20;
  if (flags.sinks < 0 || flags.recent < 1 || flags.sinks > kMax || flags.recent > kMax || flags.tokens > kMax)
    fail("--sinks {} --recent {} --tokens {}: give numbers of tokens up to {}, --recent at least 1", flags.sinks,
         flags.recent, flags.tokens, kMax);
  if (!(flags.part > 0 && flags.part < 1)) fail("--part {}: give a fraction between 0 and 1", flags.part);
  if (!(flags.keep > 0 && flags.keep < 1)) fail("--keep {}: give a fraction between 0 and 1", flags.keep);
  const TextModel loaded = load_text_model(flags.model);
  auto text = loaded.vocabulary->tokenize(read_text(flags.file, "the text"), true, true);
  text.resize(std::min(text.size(), static_cast<std::size_t>(std::max(1LL, flags.tokens))));
  const Hyperparameters& hyper = loaded.model->hyper();
  Decoder decoder(loaded.model, threads_of(flags.threads, hyper));
  Progress bar("reading", "tokens");
  const auto progress = [&](long long done, long long total) {
    done < total ? bar.update(done, total) : bar.clear();
    return !interrupted();
  };
  if (!flags.centres.empty()) return write_centres(flags, loaded, decoder, text, progress);
  return flags.profile ? print_profile(flags, loaded, decoder, text, progress)
                       : print_streaming(flags, loaded, decoder, text, progress);
}

}  // namespace

void add_heads(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("heads", "Measure heads: streaming heads, shares of a budget, mean queries");
  command->footer(kHeadsFooter);
  const auto flags = std::make_shared<HeadsFlags>();
  command->add_option("-f,--file", flags->file, "text file; -: standard input")->type_name("FILE")->required();
  command->add_option("--tokens", flags->tokens, "max tokens of the text")->type_name("N")->capture_default_str();
  CLI::Option* sinks = command->add_option("--sinks", flags->sinks, "number of sinks");
  CLI::Option* recent = command->add_option("--recent", flags->recent, "number of recent tokens");
  CLI::Option* part = command->add_option("--part", flags->part, "fraction of the heads to list as streaming heads");
  sinks->type_name("N")->capture_default_str();
  recent->type_name("N")->capture_default_str();
  part->type_name("P")->capture_default_str();
  command->add_flag("--profile", flags->profile, "print each head's share of the budget instead")
      ->excludes(sinks)
      ->excludes(recent)
      ->excludes(part);
  command->add_option("--keep", flags->keep, "with --profile: fraction of the tokens that is kept, over all heads")
      ->type_name("P")
      ->capture_default_str();
  command
      ->add_option("--centres", flags->centres, "write the heads' mean queries to FILE instead (policy triattention)")
      ->type_name("FILE")
      ->excludes("--profile");
  add_text_model_flags(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return run_heads(*flags); }; });
}

}  // namespace palimpsest::cli
