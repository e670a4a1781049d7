// palimpsest serve: OpenAI's HTTP API over one model and one pool of pages.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/sampling_flags.h"
#include "palimpsest/scheduler_flags.h"
#include "palimpsest/server/endpoints/routes.h"
#include "palimpsest/server/http/api_keys.h"
#include "palimpsest/server/http/systemd.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/server.h"
#include "palimpsest/system.h"
#include "palimpsest/text/sampler_fields.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr std::size_t kFooterWidth = 108;

// "POST /v1/completions, /tokenize; GET /health", in lines of at most kFooterWidth characters.
std::string list_of_endpoints() {
  std::string text = "http://HOST:PORT/ is a page for chats that shows what the cache keeps. Endpoints:";
  std::size_t line = text.size();
  std::string_view method;
  const auto add = [&](const std::string& word) {
    const bool fits = line + 1 + word.size() <= kFooterWidth;
    text += (fits ? " " : "\n") + word;
    line = fits ? line + 1 + word.size() : word.size();
  };
  for (const Endpoint& endpoint : endpoints()) {
    if (!endpoint.in_help) continue;
    if (!method.empty()) {
      text += endpoint.method == method ? "," : ";";
      ++line;
    }
    if (endpoint.method != method) {
      method = endpoint.method;
      add(std::string(method));
    }
    add(std::string(endpoint.path));
  }
  return text + ".\n";
}

constexpr const char* kServeFooter =
    R"(A request may select its cache method: "cache": {"method": "h2o", "budget": 512}. Reference: docs/server.md.
Standard output has the URL and what method auto keeps; standard error has one JSON line per request.
Ctrl-C: refuses new requests and waits --shutdown-timeout seconds for running ones; a second Ctrl-C exits at
once.

Examples:
  palimpsest serve -m model.gguf
  palimpsest serve -m model.gguf --method h2o:budget=1024,positions=cache --cache-memory 4096
  palimpsest serve -m model.gguf --host 0.0.0.0 --port 80 --api-key SECRET
  palimpsest serve -m model.gguf --host unix:/run/palimpsest.sock --api-key-file keys.txt)";

struct ServeFlags {
  ModelFlags model;
  CacheFlags cache;
  ThreadFlags threads;
  ServerOptions server;
  SchedulerFlags scheduler = {.prefix_share = 0.5};
  int max_queue = SchedulerOptions{}.max_queue;
  std::string alias, chat_template, api_key_file, pooling;
  bool strict_model = false;
  std::string session_path;
  bool shared_sessions = false, special_in_messages = false, no_page = false;
  std::string reasoning = "auto", reasoning_format = "auto";
  double disk_mib = 0;  // 0: no caches on disk
  double body_mib = 8, session_mib = 1024, timeout = 600, shutdown_timeout = 10, ping = 15, response_mib = 64;
  std::optional<long long> max_tokens, chat_tokens;  // defaults of requests, of chats
  SamplingFlags sampling;
};

std::chrono::milliseconds milliseconds(double seconds, const char* flag) {
  if (!(seconds >= 0 && seconds <= 1e6)) fail("{} {}: give seconds, up to a million", flag, seconds);
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
}

Pooling pooling_of(const std::string& word, const Hyperparameters& hyper) {
  if (word.empty()) return hyper.pooling;
  if (word == "none") return Pooling::kNone;
  if (word == "mean") return Pooling::kMean;
  if (word == "last") return Pooling::kLast;
  fail("--pooling {}: give none, mean or last", word);
}

// nullopt: as the chat template has it.
std::optional<bool> thinking_of(const std::string& word) {
  if (word == "auto") return std::nullopt;
  if (word == "on") return true;
  if (word == "off") return false;
  fail("--reasoning {}: give on, off or auto", word);
}

bool keeps_reasoning(const std::string& format) {
  if (format != "none" && format != "auto" && format != "deepseek")
    fail("--reasoning-format {}: give auto or none", format);
  return format == "none";
}

// "a,b" -> a, b
std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    if (name.empty()) fail("--alias: a name is empty: give names separated by commas");
    out.emplace_back(name);
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return out;
}

// Kept caches on disk, if --disk-cache is given.
DiskCacheOptions disk_cache(const ServeFlags& flags, const SchedulerOptions& scheduler) {
  DiskCacheOptions out;
  if (flags.disk_mib == 0) return out;
  out.max_bytes = mib_to_bytes(flags.disk_mib, "--disk-cache");
  if (flags.session_path.empty()) fail("--disk-cache: needs a folder: give --session-path DIR, too");
  if (!on_host(flags.model)) fail("--disk-cache: needs caches in the CPU's memory: leave out --device");
  if (scheduler.prefix_bytes == 0)
    fail("--disk-cache: holds kept prefixes and chats, and none are kept: leave out --prefix-cache-memory 0");
  std::error_code error;
  if (!std::filesystem::is_directory(flags.session_path, error))
    fail("--session-path {}: must be a folder that this user may write", flags.session_path);
  out.folder = flags.session_path + "/caches";
  out.scopes = {""};
  for (const std::string& key : flags.server.api_keys) out.scopes.push_back(SessionFolders::folder_of(key));
  out.on_error = [](const std::string& text) { log_event("disk cache", {{"error", text}}, false); };
  return out;
}

int serve(ServeFlags flags) {
  std::atomic<bool>& interrupt = interrupted();
  if (flags.server.port < 0 || flags.server.port > 65535)
    fail("--port {}: give a number from 0 (any free port) to 65535", flags.server.port);
  for (const auto& [tokens, flag] : {std::pair(flags.max_tokens, "-n"), {flags.chat_tokens, "--default-max-tokens"}})
    if (tokens && (*tokens == 0 || *tokens < -1 || *tokens > kMaxTokens))
      fail("{} {}: give at least 1, or -1 for as many as the trained context has", flag, *tokens);
  if (const char* key = std::getenv("PALIMPSEST_API_KEY"); flags.server.api_keys.empty() && key != nullptr)
    flags.server.api_keys = {key};
  if (!flags.api_key_file.empty())
    for (std::string& key : read_api_keys(flags.api_key_file)) flags.server.api_keys.push_back(std::move(key));
  if (!(flags.response_mib >= 0 && flags.response_mib <= 1e9))
    fail("--response-memory {}: give a size in MiB, or 0", flags.response_mib);
  flags.server.timeout = milliseconds(flags.timeout, "--timeout");
  flags.server.ping_interval = milliseconds(flags.ping, "--ping-interval");
  flags.server.shutdown_timeout = milliseconds(flags.shutdown_timeout, "--shutdown-timeout");
  flags.server.max_body = mib_to_bytes(flags.body_mib, "--max-body");

  const TextModel loaded = load_text_model(flags.model);
  const Hyperparameters& hyper = loaded.model->hyper();
  CacheFlags cache = flags.cache;
  cache.on_host = on_host(flags.model);
  SessionOptions session = session_options(cache, kDefaultMethod);
  SchedulerOptions scheduler = scheduler_options(flags.scheduler, session);
  scheduler.disk = disk_cache(flags, scheduler);
  session.auto_memory = scheduler.auto_memory();
  choose_cache_type(cache, hyper, session);
  scheduler.cache_type = session.cache_type;
  const MethodPlan plan = plan_of(session, hyper);
  session.method = plan.method();
  if (const std::string what = beyond_context(session.method, hyper); !what.empty())
    fmt::print(stderr, "palimpsest: {}\n", what);
  scheduler.max_queue = flags.max_queue;

  const bool templates = !flags.chat_template.empty() || loaded.vocabulary->has_chat_template();
  std::vector<std::string> names = names_of(flags.alias);
  if (names.empty()) {
    names = {std::filesystem::path(loaded.model->path()).stem().string()};
    // A model by name answers to it, too.
    std::error_code ignored;
    if (const std::string& given = flags.model.path; !given.empty() && !std::filesystem::exists(given, ignored))
      names.push_back(given);
  }
  ServedModel served{
      .vocabulary = loaded.vocabulary,
      .name = names.front(),
      .aliases = {names.begin() + 1, names.end()},
      .strict = flags.strict_model,
      .chat_template =
          templates ? ChatTemplate::load(loaded.vocabulary, flags.chat_template, flags.special_in_messages) : nullptr,
      .method = session.method,
      .pooling = pooling_of(flags.pooling, hyper),
      .sampling = sampler_options(flags.sampling, loaded.vocabulary.get())};
  check(served.sampling, loaded.vocabulary.get());
  served.thinking = thinking_of(flags.reasoning);
  served.reasoning_in_content = keeps_reasoning(flags.reasoning_format);
  flags.server.page = !flags.no_page;
  served.context = flags.model.options.context > 0 ? flags.model.options.context : hyper.trained_context;
  served.completion_max_tokens = flags.max_tokens;
  if (flags.max_tokens) served.default_max_tokens = *flags.max_tokens;
  if (flags.chat_tokens) served.default_max_tokens = *flags.chat_tokens;
  const auto decoder = std::make_shared<Decoder>(loaded.model, threads_of(flags.threads, hyper));
  const std::size_t session_space = mib_to_bytes(flags.session_mib, "--session-space");
  auto sessions = flags.session_path.empty()
                      ? nullptr
                      : std::make_unique<SessionFolders>(flags.session_path, session_space, flags.server.api_keys,
                                                         flags.shared_sessions);
  Server server(std::make_shared<Service>(decoder, std::move(served), scheduler, std::move(sessions),
                                          static_cast<std::size_t>(flags.response_mib * (1 << 20))),
                flags.server);
  server.bind();
  fmt::print("palimpsest serves {}, cache {}, at {}\n", server.service().model().name, spell_short(session.method),
             server.url());
  if (const std::string line = auto_line(plan); !line.empty()) fmt::print("{}\n", line);
  std::fflush(stdout);
  notify_systemd("READY=1");

  // Signal handlers only set a flag; this thread polls it.
  std::jthread watch([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !interrupt) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    notify_systemd("STOPPING=1");
    server.shut_down();
  });
  server.run();
  return kOk;
}

}  // namespace

void add_serve(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("serve", "Serve OpenAI's HTTP API with continuous batching");
  command->footer(list_of_endpoints() + kServeFooter);
  const auto flags = std::make_shared<ServeFlags>();
  const auto option = [&](const char* group, const char* name, auto& value, const char* type, const char* what) {
    return command->add_option(name, value, what)->type_name(type)->group(group)->capture_default_str();
  };
  const char* group = "Server";
  option(group, "--host", flags->server.host, "ADDRESS",
         "address to listen on; with 0.0.0.0 (all), set --api-key. unix:PATH, or a path that ends with .sock: a Unix "
         "socket");
  option(group, "--port", flags->server.port, "N", "port; 0: any free port");
  option(group, "--api-key", flags->server.api_keys, "KEY",
         "API key that clients must send; may be repeated: clients of different keys share no cache, sessions and "
         "responses")
      ->allow_extra_args(false)
      ->default_str("$PALIMPSEST_API_KEY, else none");
  option(group, "--api-key-file", flags->api_key_file, "FILE", "more API keys, one a line")->default_str("none");
  option(group, "--alias", flags->alias, "NAMES",
         "model name in the API; A,B,...: the first one, and other names of it")
      ->default_str("the file name");
  command
      ->add_flag("--strict-model", flags->strict_model,
                 "refuse requests for another model name with 404; without: any name is accepted")
      ->group(group);
  option(group, "--chat-template", flags->chat_template, "NAME|FILE", kChatTemplateHelp)
      ->default_str("the model's own");
  command
      ->add_flag(
          "--special-tokens-in-messages", flags->special_in_messages,
          "control tokens in the texts of messages and tools (<|im_end|>) have an effect; default: they are plain text")
      ->group(group);
  option(group, "-n,--n-predict", flags->max_tokens, "N",
         "default max_tokens of requests; -1: as many as the trained context has")
      ->default_str("1024 in chats, 16 in completions");
  option(group, "--default-max-tokens,--chat-tokens", flags->chat_tokens, "N", "default max_tokens of chat requests")
      ->default_str("--n-predict");
  option(group, "--reasoning", flags->reasoning, "on|off|auto",
         "whether chats of models that can begin with a reasoning do; requests may choose (enable_thinking)")
      ->default_str("auto: as the template has it");
  option(group, "--reasoning-format", flags->reasoning_format, "auto|none",
         "none: the reasoning stays in the reply's content; auto: it is in reasoning_content")
      ->default_str("auto");
  option(group, "--pooling", flags->pooling, "none|mean|last",
         "how the hidden states of a text become an embedding; none: no embeddings")
      ->default_str("the model file's, else mean");
  command->add_flag("--no-ui,--no-webui", flags->no_page, "no page for chats at /")->group(group);
  option(group, "--cors-origin", flags->server.cors_origin, "ORIGIN",
         "web pages that may call the server, besides its own: an origin, or * for all")
      ->default_str("none");
  option(group, "--allowed-host", flags->server.allowed_hosts, "NAME",
         "name in the Host header that the server is called by without an API key, or * for any; may be repeated. "
         "Addresses, the machine's name, and names without a dot or under .local and .internal are always allowed")
      ->allow_extra_args(false)
      ->default_str("none");
  option(group, "--ping-interval", flags->ping, "SECONDS",
         "interval of comments in a stream that waits for its first token; 0: none");
  option(group, "--max-body", flags->body_mib, "MIB", "max size of a request body");
  option(group, "--timeout", flags->timeout, "SECONDS", "time limit of a request, including the queue; 0: none");
  option(group, "--session-path", flags->session_path, "DIR", "folder of saved sessions")
      ->default_str("sessions are disabled");
  option(group, "--session-space", flags->session_mib, "MIB",
         "max total size of saved sessions; with several API keys, of those of each key");
  option(group, "--disk-cache", flags->disk_mib, "MIB",
         "max size of kept prefixes and chats on disk, in --session-path: those that leave memory or were not used for "
         "10 seconds are found again, also after a restart; 0: off");
  command
      ->add_flag("--shared-sessions", flags->shared_sessions,
                 "clients of all API keys share the saved sessions; default: each key has its own")
      ->group(group);
  option(group, "--response-memory", flags->response_mib, "MIB",
         "memory for the messages of responses, for previous_response_id; 0: none are stored");
  option(group, "--shutdown-timeout,--grace", flags->shutdown_timeout, "SECONDS",
         "time for running requests at shutdown");
  add_scheduler_flags(*command, flags->scheduler);
  option("Scheduler", "--max-queue", flags->max_queue, "N", "max waiting requests; more are refused with 429");
  add_text_model_flags(*command, flags->model);
  add_model_argument(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_cache_flags(*command, flags->cache, kDefaultMethod);
  hide_layerwise_flag(*command);
  add_sampling_flags(*command, flags->sampling);
  command->callback([&action, flags] { action = [flags] { return serve(*flags); }; });
}

}  // namespace palimpsest::cli
