#include "palimpsest/server/endpoints/session_memory_endpoint.h"

#include <httplib.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "palimpsest/engine/memory_map.h"
#include "palimpsest/engine/snapshot.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/reply/memory_events.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

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

}  // namespace

// Reads the tables only: no page is taken, and no model runs.
void session_memory(Service& service, Sessions& sessions, const httplib::Request& in, httplib::Response& out) {
  const std::string name = in.matches[1];
  if (!Sessions::is_name(name))
    fail_field("session", "this is no session's name: GET /v1/sessions lists those there are");
  MemoryQuery query;
  query.first = parameter(in, "from", 0, std::numeric_limits<long long>::max());
  query.max = parameter(in, "max", MemoryQuery::kMaxTokens, MemoryQuery::kMaxTokens);
  query.layer = static_cast<int>(parameter(in, "layer", -1, 1 << 20));
  query.head = static_cast<int>(parameter(in, "head", -1, 1 << 20));
  if ((query.layer < 0) != (query.head < 0)) fail_field("head", "give both 'layer' and 'head', or neither");

  const Decoder& decoder = service.scheduler().decoder();
  const auto snapshot = sessions.open(name, decoder.model());
  const SchedulerOptions& scheduler = service.scheduler().options();
  SessionOptions options;
  options.method = snapshot->method();
  options.cache_type = scheduler.cache_type;
  options.page_size = scheduler.page_size;
  options.chunk = scheduler.chunk;
  auto plan = std::make_shared<const MethodPlan>(options.method, plan_target(decoder, options));
  snapshot->check(*plan);
  Sequence sequence(decoder, options, std::move(plan), nullptr);
  ByteReader tables = snapshot->sequence_bytes();
  sequence.load_tables(tables);
  Json map = map_json(memory_map(sequence, snapshot->text().tokens, nullptr, query), *service.model().vocabulary);
  map["id"] = name;
  map["method"] = without_folders(spell_out(snapshot->method()));
  reply_json(map, out);
}

}  // namespace palimpsest
