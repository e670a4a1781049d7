// palimpsest serve: OpenAI's HTTP API over one model, or many.
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
#include "palimpsest/serve_service.h"
#include "palimpsest/server/endpoints/routes.h"
#include "palimpsest/server/http/api_keys.h"
#include "palimpsest/server/http/systemd.h"
#include "palimpsest/server/server.h"

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
  palimpsest serve --models-dir models --models-max 2
  palimpsest serve -m model.gguf --host 0.0.0.0 --port 80 --api-key SECRET
  palimpsest serve -m model.gguf --host unix:/run/palimpsest.sock --api-key-file keys.txt)";

std::chrono::milliseconds milliseconds(double seconds, const char* flag) {
  if (!(seconds >= 0 && seconds <= 1e6)) fail("{} {}: give seconds, up to a million", flag, seconds);
  return std::chrono::milliseconds(static_cast<long long>(seconds * 1000));
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

  flags.server.page = !flags.no_page;
  const ServeParts parts = serve_parts(flags);
  ServedService one;
  const std::shared_ptr<ModelHost> host = flags.models_dir.empty() ? nullptr : model_host(flags, parts);
  if (host == nullptr) {
    std::vector<std::string> names = names_of(flags.alias);
    one = load_service(flags, flags.model, names, parts);
    if (!one.warning.empty()) fmt::print(stderr, "palimpsest: {}\n", one.warning);
  }
  const auto server = host == nullptr ? std::make_unique<Server>(one.service, flags.server)
                                      : std::make_unique<Server>(host, scheduler_options_of(flags), flags.server);
  server->bind();
  if (host == nullptr)
    fmt::print("palimpsest serves {}, {}, at {}\n", one.service->model().name, one.how, server->url());
  else
    fmt::print("palimpsest serves {} models, {} at a time, at {}\n", host->known().size(), flags.models_max,
               server->url());
  if (!one.auto_line.empty()) fmt::print("{}\n", one.auto_line);
  one = {};
  std::fflush(stdout);
  notify_systemd("READY=1");

  // Signal handlers only set a flag; this thread polls it.
  std::jthread watch([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && !interrupt) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    notify_systemd("STOPPING=1");
    server->shut_down();
  });
  server->run();
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
  option(group, "--models-dir", flags->models_dir, "DIR",
         "serve the models of this folder and the pulled ones, each loaded when a request names it")
      ->default_str("one model");
  option(group, "--models-max", flags->models_max, "N",
         "with --models-dir: max models loaded at a time; each has an equal part of --cache-memory");
  option(group, "--sleep-idle-seconds", flags->idle_seconds, "SECONDS",
         "with --models-dir: unload a model after this time without a request; -1: never");
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
  option(group, "--pooling", flags->pooling, "none|mean|last|cls|rank",
         "how the hidden states of a text become an embedding; none: no embeddings; cls, rank: of encoders")
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
