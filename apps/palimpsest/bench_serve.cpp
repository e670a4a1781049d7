// palimpsest bench serve: concurrent requests to the scheduler in this process or to a server over HTTP; several
// methods in interleaved rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "palimpsest/bench_commands.h"
#include "palimpsest/bench_serve_report.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/eval/chart.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/load/http_target.h"
#include "palimpsest/load/scheduler_target.h"
#include "palimpsest/load/trace.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"
#include "palimpsest/scheduler_flags.h"
#include "palimpsest/speed/statistics.h"
#include "palimpsest/system.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

// Token ids for prompts over HTTP, where the vocabulary is unknown: every vocabulary has these.
constexpr TokenId kFirstToken = 3, kSomeTokens = 256;

struct BenchServeFlags {
  ModelFlags model;
  MethodListFlags list;
  bool method_given = false;
  ThreadFlags threads;
  SchedulerFlags scheduler;
  HttpTargetOptions http;
  long long prompts = 64, concurrency = 0, seed = 1, rounds = 1;
  Lengths lengths;
  double rate = std::numeric_limits<double>::infinity();
  std::string dataset, plot, trace;
  TraceOptions replay;
  bool json = false;
};

void check_bench(const BenchServeFlags& flags) {
  if (flags.prompts < 1 || flags.prompts > 100'000) fail("--num-prompts {}: give 1 to 100,000", flags.prompts);
  if (flags.concurrency < 0 || flags.concurrency > 100'000)
    fail("--max-concurrency {}: give 0 (no limit) to 100,000", flags.concurrency);
  if (flags.rounds < 1 || flags.rounds > 1000) fail("--reps {}: give 1 to 1000", flags.rounds);
  if (flags.seed < 0 || flags.seed > UINT32_MAX) fail("--seed {}: give 0 to {}", flags.seed, UINT32_MAX);
  if (!(flags.rate > 0)) fail("--request-rate {}: give requests per second, or inf (all at once)", flags.rate);
  for (const auto& [flag, value] :
       {std::pair("--random-input-len", flags.lengths.input), std::pair("--random-output-len", flags.lengths.output)})
    if (value < 1 || value > 100'000'000) fail("{} {}: give 1 to 100,000,000 tokens", flag, value);
  if (flags.lengths.prefix < 0 || flags.lengths.prefix > 100'000'000)
    fail("--random-prefix-len {}: give 0 to 100,000,000 tokens", flags.lengths.prefix);
  if (!(flags.replay.scale > 0 && flags.replay.scale <= 1000)) fail("--scale {}: give a factor", flags.replay.scale);
  if (!(flags.replay.think_scale >= 0 && flags.replay.think_scale <= 1000))
    fail("--think-scale {}: give a factor, or 0 for no pauses", flags.replay.think_scale);
  if (flags.replay.sessions < 0 || flags.replay.max_len < 0)
    fail("--num-sessions {}, --max-len {}: give 0 (all) or more", flags.replay.sessions, flags.replay.max_len);
  if (!(flags.http.timeout > 0 && flags.http.timeout <= 1e6)) fail("--timeout {}: give seconds", flags.http.timeout);
  if (!flags.plot.empty()) check_chart_path(flags.plot);
}

std::vector<LoadRequest> load_of(const BenchServeFlags& flags, TokenId from, TokenId to) {
  const auto seed = static_cast<std::uint32_t>(flags.seed);
  if (!flags.trace.empty()) {
    auto requests = recorded_sessions(read_text(flags.trace, "the trace"), flags.trace, flags.replay, from, to, seed);
    set_arrival_times(requests, flags.rate, seed);
    return requests;
  }
  if (flags.dataset.empty()) {
    auto requests = random_load(static_cast<int>(flags.prompts), flags.lengths, from, to, seed);
    set_arrival_times(requests, flags.rate, seed);
    return requests;
  }
  auto load = recorded_load(read_text(flags.dataset, "the recording"), flags.dataset, flags.lengths, from, to, seed);
  if (load.requests.size() > static_cast<std::size_t>(flags.prompts)) load.requests.resize(flags.prompts);
  if (load.timed && std::isfinite(flags.rate))
    fail("{} has arrival times ('at'): leave out --request-rate", flags.dataset);
  if (!load.timed) set_arrival_times(load.requests, flags.rate, seed);
  return std::move(load.requests);
}

// Makes a new target for each method and round.
class Targets {
 public:
  virtual ~Targets() = default;
  virtual std::unique_ptr<LoadTarget> make(std::size_t method) = 0;
  virtual std::vector<std::string> names() const = 0;
  virtual std::string title() const = 0;
  virtual nlohmann::json about(std::size_t method) const = 0;
  virtual std::pair<TokenId, TokenId> tokens() const = 0;  // range of token ids in prompts
  virtual std::size_t resident_peak() const { return 0; }  // 0: unknown, another process
};

class LocalTargets final : public Targets {
 public:
  explicit LocalTargets(const BenchServeFlags& flags) {
    if (flags.model.synthetic.empty()) {
      const TextModel loaded = load_text_model(flags.model);
      model_ = loaded.model;
      vocabulary_ = loaded.vocabulary;
    } else {
      model_ = load_model(flags.model);
    }
    const long long longest = flags.dataset.empty() && flags.trace.empty()
                                  ? flags.lengths.prefix + flags.lengths.input + flags.lengths.output
                                  : 1;
    list_ = method_list(flags.list, model_->hyper(), nullptr, longest);
    scheduler_ = scheduler_options(flags.scheduler, list_.front().options);
    scheduler_.max_queue = flags.trace.empty() ? static_cast<int>(flags.prompts) : 100'000;
    decoder_ = std::make_shared<Decoder>(model_, threads_of(flags.threads, model_->hyper()));
  }
  std::unique_ptr<LoadTarget> make(std::size_t method) override {
    return std::make_unique<SchedulerTarget>(decoder_, vocabulary_, scheduler_, list_[method].options.method);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> out;
    for (const auto& method : list_) out.push_back(method.name);
    return out;
  }
  std::string title() const override {
    return fmt::format("{} ({} of weights), {} threads, {} of {} cache for at most {} sequences", model_->hyper().name,
                       human_bytes(model_->hyper().weight_bytes), decoder_->threads().max(),
                       human_bytes(scheduler_.pool_bytes), name_of(scheduler_.cache_type), scheduler_.max_sequences);
  }
  nlohmann::json about(std::size_t method) const override {
    return {{"model", model_->hyper().name},
            {"method", spell_out(list_[method].options.method)},
            {"threads", decoder_->threads().max()},
            {"cache_type", name_of(scheduler_.cache_type)},
            {"page_size", scheduler_.page_size},
            {"pool_bytes", scheduler_.pool_bytes},
            {"prefix_bytes", scheduler_.prefix_bytes},
            {"max_sequences", scheduler_.max_sequences},
            {"weight_bytes", model_->hyper().weight_bytes}};
  }
  std::pair<TokenId, TokenId> tokens() const override { return {0, model_->hyper().vocabulary}; }
  std::size_t resident_peak() const override { return resident_bytes_peak(); }

 private:
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<Decoder> decoder_;
  std::vector<NamedMethod> list_;
  SchedulerOptions scheduler_;
};

class RemoteTargets final : public Targets {
 public:
  explicit RemoteTargets(const BenchServeFlags& flags) : options_(flags.http) {
    if (const char* key = std::getenv("PALIMPSEST_API_KEY"); options_.api_key.empty() && key != nullptr)
      options_.api_key = key;
    for (const auto& name : flags.list.methods) {
      CacheFlags one = flags.list.cache;
      one.method = name;
      names_.push_back(flags.method_given ? name : "the server's method");
      caches_.push_back(flags.method_given ? spell_out(method_of(one, name)) : "");
    }
    options_.model = HttpTarget(options_).model();
  }
  std::unique_ptr<LoadTarget> make(std::size_t method) override {
    HttpTargetOptions one = options_;
    one.cache = caches_[method];
    return std::make_unique<HttpTarget>(one);
  }
  std::vector<std::string> names() const override { return names_; }
  std::string title() const override { return fmt::format("{} at {}", options_.model, options_.base_url); }
  nlohmann::json about(std::size_t method) const override {
    return {{"model", options_.model}, {"base_url", options_.base_url}, {"method", caches_[method]}};
  }
  std::pair<TokenId, TokenId> tokens() const override { return {kFirstToken, kSomeTokens}; }

 private:
  HttpTargetOptions options_;
  std::vector<std::string> names_, caches_;
};

// Warm-up: loads weights and starts threads before the first timed request. Throws Error if it is not answered.
void warm_up(Targets& targets, std::size_t method, const LoadRequest& request) {
  LoadRequest small = request;
  small.prompt.resize(std::min<std::size_t>(small.prompt.size(), 8));
  small.output = std::min(small.output, 2LL);
  small.at = 0;
  small.session = -1;
  const auto target = targets.make(method);
  const LoadReport report = run_load(*target, {small}, 1, [](int) { return !interrupted(); });
  if (!report.answers.front().complete && !interrupted())
    fail("{}: the first request failed: {}", targets.names()[method], report.answers.front().error);
}

int run_serve(const BenchServeFlags& flags) {
  check_bench(flags);
  const std::unique_ptr<Targets> targets = flags.http.base_url.empty()
                                               ? std::unique_ptr<Targets>(std::make_unique<LocalTargets>(flags))
                                               : std::make_unique<RemoteTargets>(flags);
  const auto [from, to] = targets->tokens();
  const auto requests = load_of(flags, from, to);
  const auto names = targets->names();
  std::vector<ServeRow> rows;
  for (std::size_t m = 0; m < names.size(); ++m) rows.push_back({.method = m, .name = names[m], .reports = {}});

  Progress bar("serve", "requests");
  const auto each = static_cast<long long>(requests.size()), all = each * std::ssize(rows) * flags.rounds;
  long long before = 0;
  for (std::size_t m = 0; m < rows.size() && !interrupted(); ++m) warm_up(*targets, m, requests.front());
  for (long long round = 0; round < flags.rounds; ++round)
    for (std::size_t m = 0; m < rows.size() && !interrupted(); ++m) {
      const auto target = targets->make(m);
      rows[m].reports.push_back(run_load(*target, requests, static_cast<int>(flags.concurrency), [&](int done) {
        bar.update(before + done, all);
        return !interrupted();
      }));
      before += each;
    }
  bar.clear();
  std::erase_if(rows, [](const ServeRow& row) { return row.completed() == 0; });
  if (rows.empty()) return kInterrupted;

  if (flags.json) {
    nlohmann::json out = nlohmann::json::array();
    for (const auto& row : rows) {
      nlohmann::json object = targets->about(row.method);
      object.update(as_json(row));
      object["request_rate"] = std::isfinite(flags.rate) ? nlohmann::json(flags.rate) : nlohmann::json("inf");
      object["max_concurrency"] = flags.concurrency;
      object["resident_bytes_peak"] =
          targets->resident_peak() == 0 ? nlohmann::json(nullptr) : nlohmann::json(targets->resident_peak());
      out.push_back(std::move(object));
    }
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}\n", targets->title());
    print_table(rows, targets->resident_peak());
  }
  if (!flags.plot.empty()) write_chart(flags.plot, chart_of(rows, targets->title()));
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_bench_serve(CLI::App& bench, Action& action) {
  auto flags = std::make_shared<BenchServeFlags>();
  CLI::App* command = bench.add_subcommand("serve", "Concurrent requests: TTFT, TPOT, ITL, throughput");
  const char* group = "Load";
  const auto option = [&](const char* name, auto& value, const char* type, const char* what) {
    return command->add_option(name, value, what)->type_name(type)->group(group)->capture_default_str();
  };
  CLI::Option* count = option("--num-prompts", flags->prompts, "N", "number of requests; max number with --dataset");
  option("--request-rate", flags->rate, "PER_SECOND",
         "arrival rate of a Poisson process, of sessions with --trace; inf: all at once");
  option("--max-concurrency", flags->concurrency, "N", "max concurrent requests, or sessions of a trace; 0: no limit");
  option("--random-input-len", flags->lengths.input, "TOKENS", "tokens of a random prompt");
  option("--random-prefix-len", flags->lengths.prefix, "TOKENS", "tokens of a common prefix of all prompts");
  option("--random-output-len", flags->lengths.output, "TOKENS", "output tokens; end-of-text tokens are ignored");
  CLI::Option* dataset =
      command->add_option("--dataset", flags->dataset,
                          "recorded requests, '-' for standard input; per line {\"prompt\": TEXT or [TOKENS]} or "
                          "{\"input_len\": N}, optionally with \"output_len\" and \"at\" (seconds)");
  dataset->type_name("FILE")->group(group);
  CLI::Option* trace =
      command->add_option("--trace", flags->trace,
                          "recorded sessions, '-' for standard input; a line each, with the lengths of prompts and "
                          "answers, hashes of the prompts' blocks, and pauses (the format of kv-cache-tester)");
  trace->type_name("FILE")->group(group)->excludes(dataset)->excludes(count);
  option("--scale", flags->replay.scale, "FACTOR", "factor of the lengths in a trace")->needs(trace);
  option("--think-scale", flags->replay.think_scale, "FACTOR",
         "factor of the pauses in a trace, between an answer and the next request; 0: none")
      ->needs(trace);
  option("--num-sessions", flags->replay.sessions, "N", "only the first sessions of a trace; 0: all")->needs(trace);
  option("--max-len", flags->replay.max_len, "TOKENS",
         "leaves out requests of a trace with more prompt and output tokens, as scaled; 0: none")
      ->needs(trace);
  option("--seed", flags->seed, "N", "random seed of prompts and arrivals");
  option("--reps", flags->rounds, "N", "rounds of all methods, interleaved");
  group = "Server";
  CLI::Option* url = command->add_option(
      "--base-url", flags->http.base_url,
      "URL of a running server, for example http://127.0.0.1:8080; default: the scheduler in this process");
  url->type_name("URL")->group(group);
  command->add_option("--api-key", flags->http.api_key, "API key of the server")
      ->type_name("KEY")
      ->default_str("$PALIMPSEST_API_KEY")
      ->group(group)
      ->needs(url);
  option("--timeout", flags->http.timeout, "SECONDS", "timeout between tokens")->needs(url);
  add_scheduler_flags(*command, flags->scheduler);
  add_model_flags(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_method_list(*command, flags->list, {"full"});
  hide_layerwise_flag(*command);
  add_json_flag(*command, flags->json);
  command->add_option("--plot", flags->plot, "write the curves to this JSON file; bench/plot.py draws it")
      ->type_name("FILE")
      ->group("Output");
  for (const char* local : {"--model",         "--hf-repo",
                            "--synthetic",     "--device",
                            "--tensor-split",  "--rpc",
                            "--portable",      "--no-repack",
                            "--ctx-size",      "--threads",
                            "--threads-batch", "--max-num-seqs",
                            "--cache-memory",  "--prefix-cache-memory",
                            "--cache-type",    "--cache-type-k",
                            "--cache-type-v",  "--page-size",
                            "--prefill-chunk", "--prefill-layerwise"})
    url->excludes(command->get_option(local));  // options of the server's own command line
  command->callback([flags, command, &action] {
    for (const char* name : {"--method", "--policy", "--mechanism", "--positions", "--budget", "--sinks"})
      flags->method_given = flags->method_given || command->count(name) > 0;
    action = [flags] { return run_serve(*flags); };
  });
}

}  // namespace palimpsest::cli
