// palimpsest bench: decode and prefill speed of several methods and depths, in interleaved rounds.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>

#include "palimpsest/bench_commands.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/progress.h"
#include "palimpsest/speed/bandwidth.h"
#include "palimpsest/speed/speed.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct BenchFlags {
  SpeedTest test = SpeedTest::kDecode;
  ModelFlags model;
  MethodListFlags list;
  std::vector<long long> depths = {0};
  long long tokens = 64, rounds = 5;
  Fill fill = Fill::kRandom;
  std::string fill_name = "random";
  long long prompt = 0;
  ThreadFlags threads;
  long long batch = 1;
  std::vector<long long> drafts = {0};
  std::vector<double> accept = {1};
  bool adaptive = false;
  bool json = false;
};

// One line of the table: a method at a depth, with a number of drafts.
struct Row {
  const NamedMethod* method = nullptr;
  Lockstep* batch = nullptr;
  int depth = 0, drafts = 0;
  double accept = 1;
  std::vector<SpeedSample> samples;

  Summary summary(double SpeedSample::*field) const {
    std::vector<double> values;
    for (const auto& sample : samples) values.push_back(sample.*field);
    return summarize(std::move(values));
  }
};

const char* test_name(SpeedTest test) {
  return test == SpeedTest::kDecode ? "decode" : "prefill";
}

// Upper bound of tokens per second: each decode step reads all weights and the whole cache once, at full bandwidth.
double limit_of(const Row& row, const Model& model, double bandwidth) {
  const auto bytes = static_cast<double>(model.hyper().weight_bytes + row.samples.back().cache_bytes);
  return row.batch->sequences() * row.samples.back().tokens_per_step * bandwidth / bytes;
}

nlohmann::json as_json(const Row& row, const BenchFlags& flags, const Model& model, int threads, double bandwidth) {
  const Summary rate = row.summary(&SpeedSample::tokens_per_second);
  std::vector<double> samples;
  for (const auto& sample : row.samples) samples.push_back(sample.tokens_per_second);
  nlohmann::json out = {{"test", test_name(flags.test)},
                        {"model", model.hyper().name},
                        {"name", row.method->name},
                        {"method", spell_out(row.method->options.method)},
                        {"protected", spell_protection(row.method->options.method)},
                        {"depth", row.depth},
                        {"tokens", flags.tokens},
                        {"batch", flags.batch},
                        {"threads", threads},
                        {"cache_type", name_of(row.method->options.cache_type)},
                        {"fill", row.depth == 0 ? "none" : name_of(flags.fill)},
                        {"rounds", rate.count},
                        {"tokens_per_second",
                         {{"mean", rate.mean},
                          {"deviation", rate.deviation},
                          {"median", rate.median},
                          {"min", rate.min},
                          {"max", rate.max}}},
                        {"samples", samples},
                        {"evicted", row.samples.back().evicted},
                        {"cache_bytes", row.samples.back().cache_bytes},
                        {"cache_bytes_peak", row.samples.back().cache_bytes_peak},
                        {"rss_bytes_peak", resident_bytes_peak()},
                        {"slots_per_token", row.samples.back().slots_per_token},
                        {"weight_bytes", model.hyper().weight_bytes},
                        {"ms_prepare", row.summary(&SpeedSample::ms_prepare).median}};
  if (flags.test == SpeedTest::kDecode) {
    out["ms_p50"] = row.summary(&SpeedSample::ms_p50).median;
    out["ms_p99"] = row.summary(&SpeedSample::ms_p99).median;
    out["ms_forward"] = row.summary(&SpeedSample::ms_forward).median;
    out["ms_evict"] = row.summary(&SpeedSample::ms_evict).median;
    out["ms_attention"] = row.summary(&SpeedSample::ms_attention).median;
    out["evictions"] = row.samples.back().evictions;
    out["drafts"] = row.drafts;
    out["accept"] = row.accept;
    out["adaptive"] = flags.adaptive;
    out["tokens_per_step"] = row.summary(&SpeedSample::tokens_per_step).mean;
    out["read_bandwidth_bytes_per_second"] = bandwidth;
    out["limit_tokens_per_second"] = limit_of(row, model, bandwidth);
  }
  return out;
}

void print_table(const std::vector<Row>& rows, const BenchFlags& flags, const Model& model, int threads,
                 double bandwidth) {
  std::string fill;
  if (*std::max_element(flags.depths.begin(), flags.depths.end()) > 0)
    fill = flags.fill == Fill::kRandom   ? "; cache filled with random rows"
           : flags.fill == Fill::kPrompt ? "; cache filled by a prefill"
                                         : "; cache fragmented as by generation (random keys)";
  const std::string batch = flags.batch == 1 ? "" : fmt::format(", {} sequences in lockstep", flags.batch);
  fmt::print("{} ({} of weights), {} threads{}, {} cache{}; {} interleaved rounds of {} tokens\n", model.hyper().name,
             human_bytes(model.hyper().weight_bytes), threads, batch, name_of(rows.front().method->options.cache_type),
             fill, rows.front().samples.size(), flags.tokens);
  std::size_t width = 6;
  for (const auto& row : rows) width = std::max(width, row.method->name.size());
  const bool decode = flags.test == SpeedTest::kDecode;
  fmt::print("{:<{}}  {:>7}  {:>18}  {:>8}", "method", width, "depth", "tokens/s", "median");
  const bool drafts = std::ranges::max(flags.drafts) > 0;
  if (drafts) fmt::print("  {:>6}  {:>6}  {:>8}", "drafts", "accept", "tok/step");
  if (decode) fmt::print("  {:>8}  {:>8}  {:>8}  {:>9}  {:>8}", "p50 ms", "p99 ms", "evict ms", "attend ms", "limit");
  fmt::print("  {:>9}  {:>10}  {:>6}\n", "evicted", "cache", "slots");
  for (const auto& row : rows) {
    const Summary rate = row.summary(&SpeedSample::tokens_per_second);
    fmt::print("{:<{}}  {:>7}  {:>9.2f} ± {:>6.2f}  {:>8.2f}", row.method->name, width, row.depth, rate.mean,
               rate.deviation, rate.median);
    if (drafts)
      fmt::print("  {:>6}  {:>6.2f}  {:>8.2f}", row.drafts, row.accept,
                 row.summary(&SpeedSample::tokens_per_step).mean);
    if (decode)
      fmt::print("  {:>8.2f}  {:>8.2f}  {:>8.3f}  {:>9.2f}  {:>8.1f}", row.summary(&SpeedSample::ms_p50).median,
                 row.summary(&SpeedSample::ms_p99).median, row.summary(&SpeedSample::ms_evict).median,
                 row.summary(&SpeedSample::ms_attention).median, limit_of(row, model, bandwidth));
    fmt::print("  {:>9}  {:>10}  {:>5.2f}x\n", row.samples.back().evicted, human_bytes(row.samples.back().cache_bytes),
               row.samples.back().slots_per_token);
  }
  fmt::print("slots: allocated slots per kept token\n");
  if (drafts)
    fmt::print(
        "drafts: max in a step; accept: probability that a draft is accepted if those before it do; ms are of steps\n");
  if (decode)
    fmt::print("limit: weights and cache read once per step at {:.1f} GB/s (measured, {} threads)\n", bandwidth / 1e9,
               threads);
}

int run_bench(BenchFlags flags) {
  if (flags.rounds < 1) fail("--reps {}: give 1 or more", flags.rounds);
  if (flags.tokens < 1 || flags.tokens > 1'000'000) fail("--tokens {}: give 1 to 1,000,000", flags.tokens);
  for (const long long depth : flags.depths)
    if (depth < 0 || depth > 100'000'000) fail("--depth {}: give 0 to 100,000,000", depth);
  if (flags.batch < 1 || flags.batch > 1024) fail("--batch {}: give 1 to 1024 sequences", flags.batch);
  constexpr std::array kFills = {Fill::kRandom, Fill::kPrompt, Fill::kHistory};
  constexpr std::array<std::string_view, 3> kNames = {"random", "prompt", "history"};
  flags.fill = kFills[parse_choice(flags.fill_name, "--fill", kNames)];
  if (flags.prompt < 0 || flags.prompt > 100'000'000) fail("--prompt {}: give 0 to 100,000,000", flags.prompt);
  const auto model = load_model(flags.model);
  const StepThreads step_threads = threads_of(flags.threads, model->hyper());
  const int threads =
      flags.test == SpeedTest::kPrefill ? step_threads.batch : step_threads.of(static_cast<int>(flags.batch));
  const long long deepest = *std::max_element(flags.depths.begin(), flags.depths.end());
  auto list = method_list(flags.list, model->hyper(), nullptr, deepest + flags.tokens);
  for (const long long drafts : flags.drafts)
    if (drafts < 0 || drafts > kMaxDrafts) fail("--draft-max {}: give 0 to {}", drafts, kMaxDrafts);
  for (const double accept : flags.accept)
    if (!(accept >= 0 && accept <= 1)) fail("--draft-accept {}: give a probability from 0 to 1", accept);
  for (auto& method : list) method.options.draft_max = static_cast<int>(std::ranges::max(flags.drafts));
  const auto decoder = std::make_shared<Decoder>(model, step_threads);
  decoder->measure_attention(flags.test == SpeedTest::kDecode);
  std::vector<std::unique_ptr<Lockstep>> batches;
  std::vector<Row> rows;
  for (const auto& method : list) {
    batches.push_back(std::make_unique<Lockstep>(decoder, method.options, static_cast<int>(flags.batch)));
    for (const long long depth : flags.depths)
      for (const long long drafts : flags.drafts)
        for (const double accept : flags.accept)
          if (drafts > 0 || accept == flags.accept.front())
            rows.push_back({&method,
                            batches.back().get(),
                            static_cast<int>(depth),
                            static_cast<int>(drafts),
                            drafts > 0 ? accept : 1,
                            {}});
  }
  const int draft_max = static_cast<int>(std::ranges::max(flags.drafts));
  const DraftPrice price = flags.adaptive && draft_max > 0 ? measure_decoder(*decoder, draft_max).price : DraftPrice();
  const double bandwidth = flags.test == SpeedTest::kDecode ? read_bandwidth(threads) : 0;

  Progress bar("bench", "rounds");
  const auto rounds = static_cast<long long>(rows.size()) * flags.rounds;
  long long done = 0;
  const auto go_on = [&] {
    bar.update(done, rounds);
    return !interrupted();
  };
  for (long long round = 0; round < flags.rounds && go_on(); ++round)
    for (auto& row : rows) {
      const SpeedOptions options{.test = flags.test,
                                 .depth = row.depth,
                                 .tokens = static_cast<int>(flags.tokens),
                                 .fill = flags.fill,
                                 .prompt = static_cast<int>(flags.prompt),
                                 .drafts = row.drafts,
                                 .accept = row.accept,
                                 .adaptive = flags.adaptive,
                                 .price = price};
      const auto sample = measure_speed(*row.batch, model->hyper().vocabulary, options, go_on);
      if (sample.tokens_per_second > 0) row.samples.push_back(sample);
      ++done;
      if (!go_on()) break;
    }
  bar.clear();
  std::erase_if(rows, [](const Row& row) { return row.samples.empty(); });
  if (!rows.empty() && flags.json) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& row : rows) out.push_back(as_json(row, flags, *model, threads, bandwidth));
    fmt::print("{}\n", out.dump(2));
  } else if (!rows.empty()) {
    print_table(rows, flags, *model, threads, bandwidth);
    fmt::print("{}\n", protection_line(list));
  }
  return interrupted() ? kInterrupted : kOk;
}

void add_speed(CLI::App& bench, Action& action, SpeedTest test, const char* what) {
  auto flags = std::make_shared<BenchFlags>();
  flags->test = test;
  flags->tokens = test == SpeedTest::kDecode ? 64 : 512;
  CLI::App* command = bench.add_subcommand(test_name(test), what);
  add_model_flags(*command, flags->model);
  add_method_list(*command, flags->list, {"full"});
  add_thread_flags(*command, flags->threads);
  const char* group = "Bench";
  command->add_option("--depth", flags->depths, "tokens in the cache at the start; several: 0,2048,8192")
      ->delimiter(',')
      ->type_name("TOKENS,...")
      ->default_str("0")
      ->group(group);
  command->add_option("--tokens", flags->tokens, test == SpeedTest::kDecode ? "tokens to decode" : "prompt tokens")
      ->type_name("TOKENS")
      ->default_str(std::to_string(flags->tokens))
      ->group(group);
  command->add_option("--reps", flags->rounds, "rounds of all methods and depths, interleaved")
      ->type_name("N")
      ->default_str("5")
      ->group(group);
  command->add_option("--batch", flags->batch, "batch size: sequences decoded in lockstep")
      ->type_name("N")
      ->default_str("1")
      ->group(group);
  command
      ->add_option("--fill", flags->fill_name,
                   "how the cache is filled: random (random rows), prompt (prefill) or history (random rows token by "
                   "token, with evictions)")
      ->type_name("HOW")
      ->default_str("random")
      ->group(group);
  command->add_option("--prompt", flags->prompt, "prompt tokens within the depth, with --fill history")
      ->type_name("TOKENS")
      ->default_str("0")
      ->group(group);
  if (test == SpeedTest::kDecode) {
    command->add_option("--draft-max", flags->drafts, "random drafts in every step; several: 0,1,3,7")
        ->delimiter(',')
        ->type_name("N,...")
        ->default_str("0")
        ->group(group);
    command
        ->add_option("--draft-accept", flags->accept,
                     "probability that a draft is accepted if those before it are; several: 0,0.6,0.9")
        ->delimiter(',')
        ->type_name("P,...")
        ->default_str("1")
        ->group(group);
    command->add_flag("--draft-adaptive", flags->adaptive, "read fewer drafts, or none, while they do not pay")
        ->group(group);
  }
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_bench(*flags); }; });
}

void add_make_model(CLI::App& bench, Action& action) {
  struct MakeFlags {
    std::string shape, out;
  };
  auto flags = std::make_shared<MakeFlags>();
  CLI::App* command =
      bench.add_subcommand("make-model", "Write a GGUF file of random weights in the shape of a named model");
  command
      ->add_option(
          "--synthetic", flags->shape,
          fmt::format("one of {}; then @layers=N @type=q4_0 @vocab=N @context=N @rope=N @seed=N", synthetic_names()))
      ->type_name("SHAPE")
      ->required();
  command->add_option("-o,--out", flags->out, "output file")->type_name("FILE")->required();
  command->callback([flags, &action] {
    action = [flags] {
      write_synthetic(parse_synthetic(flags->shape), flags->out);
      return kOk;
    };
  });
}

constexpr const char* kBenchFooter = R"(Examples:
  palimpsest bench decode --synthetic llama-3.2-1b@type=q8_0 --depth 0,2048,8192
  palimpsest bench decode --synthetic llama-3.2-1b --depth 8192 --method full --method streaming:budget=1024
  palimpsest bench decode --synthetic llama-3.2-1b --depth 2048 --batch 8 --method full --method h2o
  palimpsest bench decode --synthetic llama-3.2-1b --depth 1024 --draft-max 0,1,3,7     cost of reading drafts
  palimpsest bench prefill --synthetic llama-3.2-1b@type=q8_0 --tokens 512
  palimpsest bench serve --synthetic llama-3.2-1b --method full --method streaming:budget=512 --num-prompts 32
  palimpsest bench serve --base-url http://127.0.0.1:8080 --request-rate 2 --plot load.json
  palimpsest bench make-model --synthetic llama-3.2-1b@type=q8_0@vocab=32000 -o random.gguf)";

}  // namespace

void add_bench(CLI::App& app, Action& action) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed: decode, prefill, concurrent requests; compare methods");
  bench->footer(kBenchFooter);  // subcommands inherit it
  bench->require_subcommand(1);
  add_speed(*bench, action, SpeedTest::kDecode, "Decode speed");
  add_speed(*bench, action, SpeedTest::kPrefill, "Prefill speed");
  add_bench_methods(*bench, action);
  add_bench_serve(*bench, action);
  add_make_model(*bench, action);
}

}  // namespace palimpsest::cli
