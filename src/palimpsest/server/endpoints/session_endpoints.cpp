#include <charconv>
#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <utility>

#include "palimpsest/engine/sequence/memory_map.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/memory_events.h"
#include "palimpsest/server/reply/reply_parts.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/prompt_field.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

long long parameter(const httplib::Request& in, const char* name, long long fallback, long long max) {
  if (!in.has_param(name)) return fallback;
  const std::string text = in.get_param_value(name);
  long long value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > max)
    fail_field(name, "'{}' must be a number from 0 to {}", name, max);
  return value;
}

Json token_json(const MemoryMap::Token& token, Position position, std::string text) {
  return {{"position", position},
          {"id", token.id < 0 ? Json(nullptr) : Json(token.id)},
          {"text", std::move(text)},
          {"kept", token.kept},
          {"merged", token.merged},
          {"sink", token.sink},
          {"pinned", token.pinned},
          {"evicted_at", token.evicted_at == kNoPosition ? Json(nullptr) : Json(token.evicted_at)}};
}

Json map_json(const MemoryMap& map, const Vocabulary& vocabulary) {
  TokenSplitter texts(vocabulary);
  Json tokens = Json::array();
  for (std::size_t i = 0; i < map.tokens.size(); ++i)
    tokens.push_back(token_json(map.tokens[i], map.first + static_cast<Position>(i), texts.text(map.tokens[i].id)));
  for (const HeadToken& kept : map.head) {
    const Position i = kept.position - map.first;
    if (i < 0 || i >= std::ssize(map.tokens)) continue;
    Json& token = tokens[static_cast<std::size_t>(i)];
    token["slot"] = kept.slot;
    token["score"] = std::isfinite(kept.score) ? Json(kept.score) : Json(nullptr);
    token["merged_into"] = kept.into == kNoPosition ? Json(nullptr) : Json(kept.into);
  }
  return {{"object", "memory"},
          {"read", map.next},
          {"layers", map.layers},
          {"heads", map.heads},
          {"bytes", {{"cache", map.bytes.cache}, {"limit", map.bytes.limit}, {"full", map.bytes.full}}},
          {"first", map.first},
          {"tokens", std::move(tokens)}};
}

// Waits for the edited sequence, which comes from the scheduler's thread.
class EditListener final : public RequestListener {
 public:
  bool written(const SampledToken&) override { return false; }
  void kept(std::shared_ptr<const KeptSequence> sequence) override {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(sequence);
  }
  void finished(Finish finish, const Usage& usage) override {
    const std::lock_guard lock(mutex_);
    finish_ = finish;
    usage_ = usage;
    changed_.notify_one();
  }
  bool done_within(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return finish_.has_value(); });
  }
  // After done_within() returned true.
  std::shared_ptr<const KeptSequence> take() { return std::move(kept_); }
  Finish finish() const { return *finish_; }
  const Usage& usage() const { return usage_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Finish> finish_;
  Usage usage_;
  std::shared_ptr<const KeptSequence> kept_;
};

std::string session_name(const HttpCall& call) {
  if (!Sessions::is_name(call.name()))
    fail_field("session", "this is no session's name: GET /v1/sessions lists those there are");
  return call.name();
}

}  // namespace

void list_sessions(const HttpCall& call) {
  call.reply({{"object", "list"}, {"data", call.sessions().list()}});
}

void remove_session(const HttpCall& call) {
  const std::string name = session_name(call);
  call.sessions().remove(name);
  call.reply({{"id", name}, {"object", "session"}, {"deleted", true}});
}

// Reads the tables only: no page is taken, and no model runs.
void show_session_memory(const HttpCall& call) {
  const std::string name = session_name(call);
  MemoryQuery query;
  query.first = parameter(call.in, "from", 0, std::numeric_limits<long long>::max());
  query.max = parameter(call.in, "max", MemoryQuery::kMaxTokens, MemoryQuery::kMaxTokens);
  query.layer = static_cast<int>(parameter(call.in, "layer", -1, 1 << 20));
  query.head = static_cast<int>(parameter(call.in, "head", -1, 1 << 20));
  if ((query.layer < 0) != (query.head < 0)) fail_field("head", "give both 'layer' and 'head', or neither");

  const Decoder& decoder = call.service->scheduler().decoder();
  const auto snapshot = call.sessions().open(name, decoder.model());
  const SchedulerOptions& scheduler = call.service->scheduler().options();
  SessionOptions options;
  options.method = snapshot->method();
  options.cache_type = scheduler.cache_type;
  options.profile_file = scheduler.profile_file;
  options.page_size = scheduler.page_size;
  options.chunk = scheduler.chunk;
  auto plan = std::make_shared<const MethodPlan>(options.method, plan_target(decoder, options));
  snapshot->check(*plan);
  Sequence sequence(decoder, options, std::move(plan), nullptr);
  ByteReader tables = snapshot->sequence_bytes();
  sequence.load_tables(tables);
  Json map = map_json(memory_map(sequence, snapshot->text().tokens, nullptr, query), *call.model().vocabulary);
  map["id"] = name;
  map["method"] = without_folders(spell_out(snapshot->method()));
  call.reply(map);
}

// An agent's, named by prompt_cache_key or x-session-id: not a saved one.
void close_session(const HttpCall& call) {
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  fields.need("session_id");
  const std::string session = fields.text("session_id", "");
  if (session.empty() || session.size() > kMaxSessionId)
    fields.refuse("session_id", "must have 1 to {} bytes", kMaxSessionId);
  fields.end();
  call.host.close_session(session, call.key());
  call.reply({{"session_id", session}, {"closed", true}});
}

void edit_session(const HttpCall& call) {
  const Json body = parse_json(call.in.body);
  JsonFields fields(body);
  const std::string name = session_name(call), save = fields.text("save", name);
  if (!Sessions::is_name(save))
    fields.refuse("save", "must be 1 to 64 letters, digits, '.', '_' and '-', the first no '.'");
  constexpr long long kMax = 1LL << 60;
  TextEdit edit;
  fields.need("first"), fields.need("last");
  edit.range = {fields.integer("first", 0, 0, kMax), fields.integer("last", 0, 0, kMax)};
  edit.mode = parse_field("mode", [&] { return parse_edit_mode(fields.text("mode", "reuse")); });
  if (const Json* text = fields.take("text")) edit.tokens = read_prompt(*text, "text", call.model(), true);
  fields.end();

  Request request;
  request.resume = call.sessions().open(name, call.service->scheduler().decoder().model());
  request.method = request.resume->method();
  request.max_tokens = 0;
  request.edit = std::move(edit);
  request.reuse = Reuse::kNothing;
  request.keep = true;
  if (call.options.timeout > 0ms) request.deadline = Clock::now() + call.options.timeout;
  const auto listener = std::make_shared<EditListener>();
  Service::Ticket ticket(*call.service);
  ticket.submit(std::move(request), listener);
  while (!listener->done_within(100ms)) call.check_waits();
  const Usage& usage = listener->usage();
  if (listener->finish() != Finish::kLength) throw error_of(listener->finish(), usage);
  Json answer = call.sessions().save(save, *listener->take());
  answer["usage"] = {{"prompt_tokens", usage.prompt_tokens}, {"evicted_tokens", usage.evicted}};
  log_fields()["session"] = save;
  log_fields()["prompt_tokens"] = usage.prompt_tokens;
  call.reply(answer);
}

}  // namespace palimpsest
