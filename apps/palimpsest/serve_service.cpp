#include "palimpsest/serve_service.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/hub/models_dir.h"
#include "palimpsest/server/log.h"
#include "palimpsest/text/sampler_fields.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

namespace fs = std::filesystem;

Pooling pooling_of(const std::string& word, const Hyperparameters& hyper) {
  if (word.empty()) return hyper.pooling;
  if (word == "none") return Pooling::kNone;
  if (word == "mean") return Pooling::kMean;
  if (word == "last") return Pooling::kLast;
  fail("--pooling {}: give none, mean or last; encoders also take cls and rank", word);
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

SessionOptions session_of(const ServeFlags& flags) {
  CacheFlags cache = flags.cache;
  cache.on_host = on_host(flags.model);
  SessionOptions session = session_options(cache, kDefaultMethod);
  check_shares_steps(session.method);
  return session;
}

}  // namespace

ServeParts serve_parts(const ServeFlags& flags) {
  ServeParts parts;
  const std::size_t space = mib_to_bytes(flags.session_mib, "--session-space");
  if (!flags.session_path.empty())
    parts.sessions =
        std::make_shared<SessionFolders>(flags.session_path, space, flags.server.api_keys, flags.shared_sessions);
  parts.responses = std::make_shared<ResponseStore>(static_cast<std::size_t>(flags.response_mib * (1 << 20)));
  return parts;
}

SchedulerOptions scheduler_options_of(const ServeFlags& flags) {
  SchedulerOptions scheduler = scheduler_options(flags.scheduler, session_of(flags));
  if (!flags.models_dir.empty()) {
    scheduler.pool_bytes /= at(flags.models_max);
    scheduler.prefix_bytes /= at(flags.models_max);
  }
  scheduler.disk = disk_cache(flags, scheduler);
  scheduler.max_queue = flags.max_queue;
  return scheduler;
}

namespace {

// Of an encoder, which libllama runs.
ServedService load_encoder(const ServeFlags& flags, const ModelFlags& model, const std::string& path,
                           const std::vector<std::string>& names, const ServeParts& parts) {
  const ModelOptions& given = model.options;
  const bool alone = flags.models_dir.empty();  // else flags are also of models that write
  const CacheFlags& cache = flags.cache;
  for (const auto& [is_given, flag] : {std::pair(!given.lora.empty(), "--lora"),
                                       {!given.rpc.empty(), "--rpc"},
                                       {given.rope.given(), "--rope-scaling and its relatives"},
                                       {alone && !cache.method.empty(), "--method"},
                                       {alone && cache.policy, "--policy"},
                                       {alone && cache.mechanism, "--mechanism"},
                                       {alone && cache.positions, "--positions"},
                                       {alone && cache.budget, "--budget"},
                                       {alone && cache.sinks, "--sinks"},
                                       {alone && !flags.chat_template.empty(), "--chat-template"},
                                       {alone && !flags.session_path.empty(), "--session-path"}})
    if (is_given) fail("{}: does not apply to encoders: leave it out", flag);
  EncoderOptions options{.device = given.device,
                         .threads = threads_of(flags.threads, {}).batch,
                         .context = given.context,
                         .repack = given.repack,
                         .overrides = given.overrides};
  if (!flags.pooling.empty()) options.pooling = parse_encoder_pooling(flags.pooling);
  const std::shared_ptr<Encoder> encoder = Encoder::load(path, options);
  ServedModel served{.vocabulary = Vocabulary::load(path, given.overrides),
                     .name = names.front(),
                     .aliases = {names.begin() + 1, names.end()},
                     .strict = flags.strict_model,
                     .chat_template = nullptr,
                     .method = {}};
  served.context = encoder->context();
  return {
      .service = std::make_shared<Service>(encoder, std::move(served), scheduler_options_of(flags), parts.responses),
      .how = fmt::format("encoder {}, pooling {}", encoder->file().architecture, name_of(encoder->pooling()))};
}

// The names of a model in the API, unless they are given. A model by name answers to it, too.
std::vector<std::string> names_of_model(const ModelFlags& model, const std::string& path) {
  std::vector<std::string> names = {fs::path(path).stem().string()};
  std::error_code ignored;
  if (const std::string& given = model.path; !given.empty() && !fs::exists(given, ignored)) names.push_back(given);
  return names;
}

}  // namespace

ServedService load_service(const ServeFlags& flags, const ModelFlags& model, std::vector<std::string> names,
                           const ServeParts& parts) {
  if (model.synthetic.empty()) {
    const std::string path = model_path(model);
    if (names.empty()) names = names_of_model(model, path);
    if (is_encoder(GgufFile::open(path))) return load_encoder(flags, model, path, names, parts);
  }
  const TextModel loaded = load_text_model(model);
  const Hyperparameters& hyper = loaded.model->hyper();
  CacheFlags cache = flags.cache;
  cache.on_host = on_host(flags.model);
  SessionOptions session = session_of(flags);
  SchedulerOptions scheduler = scheduler_options_of(flags);
  session.auto_memory = scheduler.auto_memory();
  choose_cache_type(cache, hyper, session);
  scheduler.cache_type = session.cache_type;
  const bool pins_prompts = std::exchange(session.method.protection.prompt, false);  // each request its own
  session.profile_file = profile_of(loaded, session, threads_of(flags.threads, hyper));
  scheduler.profile_file = session.profile_file;
  const MethodPlan plan = plan_of(session, hyper);
  session.method = plan.method();
  session.method.protection.prompt = pins_prompts;
  ServedService out{.service = nullptr,
                    .how = "cache " + spell_short(session.method),
                    .auto_line = auto_line(plan),
                    .warning = beyond_context(session.method, hyper)};
  const bool templates = !flags.chat_template.empty() || loaded.vocabulary->has_chat_template();
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
  served.context = model.options.context > 0 ? model.options.context : hyper.trained_context;
  served.completion_max_tokens = flags.max_tokens;
  if (flags.max_tokens) served.default_max_tokens = *flags.max_tokens;
  if (flags.chat_tokens) served.default_max_tokens = *flags.chat_tokens;
  const auto decoder = std::make_shared<Decoder>(loaded.model, threads_of(flags.threads, hyper));
  out.service = std::make_shared<Service>(decoder, std::move(served), scheduler, parts.sessions, parts.responses);
  return out;
}

std::shared_ptr<ModelHost> model_host(const ServeFlags& flags, const ServeParts& parts) {
  std::error_code error;
  if (!fs::is_directory(flags.models_dir, error)) fail("--models-dir {}: is no folder", flags.models_dir);
  if (flags.models_max < 1 || flags.models_max > 1000)
    fail("--models-max {}: give a number from 1 to 1000", flags.models_max);
  if (!(flags.idle_seconds <= 1e9)) fail("--sleep-idle-seconds {}: give seconds, or -1", flags.idle_seconds);
  for (const auto& [given, flag] : {std::pair(!flags.model.path.empty() || !flags.model.hub.empty(), "-m"),
                                    {!flags.alias.empty(), "--alias"},
                                    {!flags.chat_template.empty(), "--chat-template"},
                                    {!flags.model.options.lora.empty(), "--lora"}})
    if (given) fail("{} and --models-dir exclude each other: it is of one model", flag);
  scheduler_options_of(flags);  // throws
  return std::make_shared<ModelHost>(ModelHostOptions{
      .list =
          [folder = flags.models_dir] {
            std::vector<KnownModel> all;
            for (ModelInFolder& each : models_in(folder))
              all.push_back({.name = std::move(each.name), .path = each.path.string(), .bytes = each.bytes});
            return all;
          },
      .load =
          [flags, parts](const KnownModel& known) {
            ModelFlags model = flags.model;
            model.path = known.path;
            return load_service(flags, model, {known.name}, parts).service;
          },
      .max_loaded = flags.models_max,
      .keep_alive = flags.idle_seconds < 0
                        ? std::nullopt
                        : std::optional(std::chrono::milliseconds(static_cast<long long>(flags.idle_seconds * 1000))),
      .sessions = parts.sessions,
      .responses = parts.responses});
}

}  // namespace palimpsest::cli
