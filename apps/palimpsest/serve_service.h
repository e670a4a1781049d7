// The services of `palimpsest serve`: of one model, or of many that are loaded when requests name them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/options.h"
#include "palimpsest/sampling_flags.h"
#include "palimpsest/scheduler_flags.h"
#include "palimpsest/server/model_host.h"
#include "palimpsest/server/server_options.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {

struct ServeFlags {
  ModelFlags model;
  CacheFlags cache;
  ThreadFlags threads;
  ServerOptions server;
  SchedulerFlags scheduler = {.prefix_share = 0.5};
  int max_queue = SchedulerOptions{}.max_queue;
  std::string models_dir;  // empty: one model
  int models_max = 4;
  double idle_seconds = -1;
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

// What all models of a server share.
struct ServeParts {
  std::shared_ptr<SessionFolders> sessions;  // nullptr: none
  std::shared_ptr<ResponseStore> responses;
};
ServeParts serve_parts(const ServeFlags& flags);  // throws Error

struct ServedService {
  std::shared_ptr<Service> service;
  std::string how;                           // "cache streaming:budget=512", "encoder bert, pooling mean"
  std::string auto_line = {}, warning = {};  // lines for the user
};
// `names`: of the model in the API; empty: its file's. Throws Error.
ServedService load_service(const ServeFlags& flags, const ModelFlags& model, std::vector<std::string> names,
                           const ServeParts& parts);

// Of each model, with its part of the memory. Throws Error.
SchedulerOptions scheduler_options_of(const ServeFlags& flags);

std::shared_ptr<ModelHost> model_host(const ServeFlags& flags, const ServeParts& parts);  // throws Error

}  // namespace palimpsest::cli
