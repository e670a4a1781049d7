// palimpsest plan: how many requests fit into a memory, by method and length.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/fit/own_shares.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlanFooter = R"(Examples:
  palimpsest plan model.gguf
  palimpsest plan -m model.gguf --memory 8GiB --method full --method h2o:budget=1024 --tokens 4096,32768
  palimpsest plan --synthetic llama-3.2-1b@type=q4_0 --memory 16GiB --cache-type q8_0 --json

A number is how many requests of so many tokens, prompt and answer, have room in the memory (`serve` runs at
most --max-num-seqs at the same time). The memory holds the weights, the program with its vocabulary, the
arrays of a step, and the caches.)";

// Measured with three models (docs/server.md): the program, and what a token of the vocabulary takes.
constexpr std::size_t kProgramBytes = std::size_t{40} << 20, kTokenBytes = 700;
constexpr int kFloatsOfWidth = 8, kFloatsOfFeedForward = 2;  // of a token in a step

struct PlanFlags {
  ModelFlags model;
  std::vector<std::string> methods = {"full", "auto:budget=1024", "streaming:budget=1024", "h2o:budget=1024"};
  std::string memory, tokens = "1024,4096,16384,65536";
  std::string cache_type = "f16";
  bool json = false;
};

std::vector<long long> lengths_of(const std::string& text) {
  std::vector<long long> lengths;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    lengths.push_back(parse_integer(std::string_view(text).substr(at, end - at), "--tokens", 1, kMaxTokens));
    at = end + 1;
  }
  return lengths;
}

// The bytes that the scheduler reserves for a request of so many tokens; nullopt: it refuses such requests.
std::optional<std::size_t> bytes_of(const MethodPlan& plan, long long tokens) {
  try {
    plan.check_request(tokens, tokens);
  } catch (const Error&) {
    return std::nullopt;
  }
  return plan.bytes(tokens, tokens).total();
}

Json row_of(const std::string& text, const PlanFlags& flags, const Model& model, std::size_t pool) {
  const Hyperparameters& hyper = model.hyper();
  CacheFlags cache;
  cache.method = text;
  cache.cache_type = flags.cache_type;
  SessionOptions options = session_options(cache, text);
  SchedulerOptions scheduler;
  scheduler.pool_bytes = pool;
  options.auto_memory = scheduler.auto_memory();
  options.profile_file = kept_shares(model, options);
  PlanTarget target = plan_target(hyper, options);
  target.shares_steps = target.shares_pages = true;
  const MethodPlan plan(options.method, std::move(target));
  Json row = {{"method", text}, {"requests", Json::array()}};
  for (const long long tokens : lengths_of(flags.tokens)) {
    Json& cell = row["requests"].emplace_back(Json{{"tokens", tokens}});
    const bool too_long = !plan.method().evicts() && hyper.trained_context > 0 && tokens > hyper.trained_context;
    const auto bytes = too_long ? std::nullopt : bytes_of(plan, tokens);
    if (!bytes) continue;
    cell["bytes"] = *bytes;
    cell["count"] = pool / *bytes;
  }
  return row;
}

Json plan_json(const PlanFlags& flags) {
  ModelFlags model_flags = flags.model;
  model_flags.options.repack = false;  // nothing is computed here
  if (!on_host(model_flags)) fail("a plan is for the CPU's fast path: leave out --portable, --device and --rpc");
  const auto model = load_model(model_flags);
  const Hyperparameters& hyper = model->hyper();
  const SchedulerOptions defaults;
  const std::size_t memory = flags.memory.empty() ? available_bytes() : parse_bytes(flags.memory, "--memory");
  const std::size_t program = kProgramBytes + kTokenBytes * static_cast<std::size_t>(hyper.vocabulary);
  const int feed_forward = hyper.feed_forward.empty() ? 0 : std::ranges::max(hyper.feed_forward);
  const std::size_t step = sizeof(float) * static_cast<std::size_t>(defaults.max_sequences + defaults.chunk) *
                           static_cast<std::size_t>(kFloatsOfWidth * hyper.width + kFloatsOfFeedForward * feed_forward);
  const std::size_t taken = hyper.weight_bytes + program + step;
  if (taken >= memory)
    fail("{} of memory: the weights take {}, the program and a step about {}: give more, or use a smaller model",
         human_bytes(memory), human_bytes(hyper.weight_bytes), human_bytes(program + step));
  Json out = {{"model", model->path().empty() ? hyper.name : model->path()},
              {"trained_context", hyper.trained_context},
              {"memory_bytes", memory},
              {"weight_bytes", hyper.weight_bytes},
              {"program_bytes", program},
              {"step_bytes", step},
              {"cache_bytes", memory - taken},
              {"cache_type", flags.cache_type},
              {"methods", Json::array()}};
  for (const std::string& method : flags.methods)
    out["methods"].push_back(row_of(method, flags, *model, memory - taken));
  return out;
}

void print_plan(const Json& p, const PlanFlags& flags) {
  const auto bytes = [&](const char* key) { return human_bytes(p[key].get<std::size_t>()); };
  fmt::print("{}\n", p["model"].get<std::string>());
  fmt::print("{} of memory{}: {} weights, {} program and vocabulary, {} arrays of a step, {} left for caches\n\n",
             bytes("memory_bytes"), flags.memory.empty() ? " available" : "", bytes("weight_bytes"),
             bytes("program_bytes"), bytes("step_bytes"), bytes("cache_bytes"));
  std::size_t width = std::string("method").size();
  for (const Json& row : p["methods"]) width = std::max(width, row["method"].get<std::string>().size());
  fmt::print("Requests at the same time, by their tokens, {} keys and values:\n{:{}}", flags.cache_type, "method",
             width);
  for (const long long tokens : lengths_of(flags.tokens)) fmt::print("  {:>10}", thousands(tokens));
  fmt::print("\n");
  bool unfit = false;
  for (const Json& row : p["methods"]) {
    fmt::print("{:{}}", row["method"].get<std::string>(), width);
    for (const Json& cell : row["requests"]) {
      unfit = unfit || !cell.contains("count");
      fmt::print("  {:>10}", cell.contains("count") ? thousands(cell["count"].get<long long>()) : "-");
    }
    fmt::print("\n");
  }
  if (unfit)
    fmt::print("-: longer than the trained context of {} without evictions, or refused by the server\n",
               thousands(p["trained_context"].get<long long>()));
  fmt::print("\nThe server for it: palimpsest serve{} --cache-memory {}\n",
             flags.model.path.empty() ? "" : " -m " + flags.model.path, p["cache_bytes"].get<std::size_t>() >> 20);
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("plan", "Show how many requests fit into a memory, by method and length");
  command->footer(kPlanFooter);
  const auto flags = std::make_shared<PlanFlags>();
  add_model_flags(*command, flags->model);
  add_model_argument(*command, flags->model);
  command->add_option("--memory", flags->memory, "memory of the server: weights, program, caches")
      ->type_name("SIZE")
      ->default_str("what is available now (in a container: inside its limit)")
      ->group("Plan");
  command->add_option("--method", flags->methods, "method; repeat the flag for several")
      ->type_name("METHOD")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("full, and auto, streaming and h2o with a budget of 1024")
      ->group("Plan");
  command->add_option("--tokens", flags->tokens, "lengths of requests, prompt and answer")
      ->type_name("N,...")
      ->capture_default_str()
      ->group("Plan");
  command->add_option("--cache-type", flags->cache_type, "type of keys and values: f32, f16, bf16, q8_0, q4, q3, q2")
      ->type_name("TYPE")
      ->capture_default_str()
      ->group("Plan");
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] {
    action = [flags] {
      const Json plan = plan_json(*flags);
      if (flags->json)
        fmt::print("{}\n", plan.dump(2));
      else
        print_plan(plan, *flags);
      return kOk;
    };
  });
}

}  // namespace palimpsest::cli
