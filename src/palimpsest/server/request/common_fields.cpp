#include "palimpsest/server/request/common_fields.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include "palimpsest/budget/split.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/server/sessions.h"

namespace palimpsest {
namespace {

constexpr std::chrono::seconds kMaxPin{24 * 3600};
constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 1024;  // each answer has a copy

void read_session(JsonFields& fields, CompletionRequest& out) {
  fields.object("session", [&](JsonFields& session) {
    const auto name = [&](const char* field) {
      const bool given = session.take(field) != nullptr;
      std::string text = session.text(field, "");
      if (given && !Sessions::is_name(text))
        session.refuse(field, "must be 1 to 64 letters, digits, '.', '_' and '-', the first no '.'");
      return text;
    };
    out.restore = name("restore");
    out.save = name("save");
  });
  out.request.keep = !out.save.empty();
}

// {"cache": {"pin": true}}
bool pins_prompt(const Json* cache) {
  if (cache == nullptr || !cache->is_object()) return false;
  const auto pin = cache->find("pin");
  return pin != cache->end() && pin->is_boolean() && pin->get<bool>();
}

// true, false, or {"layer": n, "head": n}
std::optional<MemoryView> read_memory_view(JsonFields& fields) {
  const Json* value = fields.take("memory_events");
  if (value == nullptr || *value == false) return std::nullopt;
  MemoryView view;
  if (*value == true) return view;
  if (!value->is_object()) fields.refuse("memory_events", "must be true, false, or an object with 'layer' and 'head'");
  fields.object("memory_events", [&](JsonFields& of) {
    view.layer = static_cast<int>(of.integer("layer", 0, 0, 1 << 20));
    view.head = static_cast<int>(of.integer("head", 0, 0, 1 << 20));
  });
  return view;
}

// {"type": "lookup", "max": 8}
void read_speculative(JsonFields& fields, Request& out) {
  fields.object("speculative", [&](JsonFields& of) {
    if (const std::string type = of.text("type", "lookup"); type != "lookup")
      of.refuse("type", "is '{}': lookup is supported", type);
    out.drafts.max = static_cast<int>(of.integer("max", DraftOptions().max, 1, kMaxDrafts));
    out.drafts.min = static_cast<int>(of.integer("min", 0, 0, out.drafts.max));
  });
}

// "5m", "1h", "90s"
std::chrono::seconds read_ttl(JsonFields& fields) {
  const std::string text = fields.text("ttl", "5m");
  long long count = 0;
  const char* const end = text.data() + text.size();
  const auto [unit, error] = std::from_chars(text.data(), end, count);
  const bool known = error == std::errc() && unit + 1 == end && (*unit == 's' || *unit == 'm' || *unit == 'h');
  const long long seconds = !known || count < 1 || count > kMaxPin.count() ? 0
                            : *unit == 's'                                 ? count
                            : *unit == 'm'                                 ? 60 * count
                                                                           : 3600 * count;
  if (seconds < 1 || seconds > kMaxPin.count())
    fields.refuse("ttl", "is '{}': give a time of at most 24 hours, as in 90s, 5m or 1h", text);
  return std::chrono::seconds(seconds);
}

// What agents say of their requests: fields of OpenAI, Anthropic, vLLM and SGLang.
void read_agent_fields(JsonFields& fields, Request& out) {
  constexpr long long kMax = 1'000'000;
  out.priority = static_cast<int>(fields.integer("priority", 0, -kMax, kMax));
  out.session = fields.text("prompt_cache_key", "");
  if (out.session.size() > kMaxSessionId)
    fields.refuse("prompt_cache_key", "has {} bytes: give at most {}", out.session.size(), kMaxSessionId);
  if (fields.text("prompt_cache_retention", "") == "24h") out.pin = kMaxPin;
  read_cache_control(fields, out);
}

// Whether the request continues from kept caches, and leaves its own: prefixes do not change an answer, histories may.
Reuse read_cache_prompt(JsonFields& fields, bool chat) {
  if (fields.boolean("cache_prompt", chat)) return Reuse::kHistories;
  return fields.take("cache_prompt") == nullptr ? Reuse::kPrefixes : Reuse::kNothing;
}

}  // namespace

void read_cache_control(JsonFields& fields, Request& out) {
  fields.object("cache_control", [&](JsonFields& control) {
    if (const std::string type = control.text("type", ""); type != "ephemeral")
      control.refuse("type", "is '{}': ephemeral is supported", type);
    out.pin = std::max(out.pin, read_ttl(control));
  });
}

void read_stop(JsonFields& fields, const char* name, std::vector<std::string>& out) {
  const Json* stop = fields.take(name);
  if (stop == nullptr) return;
  if (stop->is_array() && stop->size() > kMaxStops)
    fields.refuse(name, "has {} strings: give at most {}", stop->size(), kMaxStops);
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& each : list) {
    if (!each.is_string()) fields.refuse(name, "must be a string or a list of strings");
    out.push_back(each.get<std::string>());
    if (out.back().empty()) fields.refuse(name, "has an empty string: leave it out, or give it at least one character");
    if (out.back().size() > kMaxStopBytes)
      fields.refuse(name, "has a string of {} bytes: give at most {}", out.back().size(), kMaxStopBytes);
  }
}

Method parse_cache(const Json& value, const Method& fallback) {
  Method method = fallback;
  if (value.is_string()) {
    method = parse_field("cache", [&] { return parse_method(value.get<std::string>()); });
  } else {
    JsonFields fields(value, "cache.");
    if (const std::string name = fields.text("method", ""); !name.empty())
      method = parse_field("cache.method", [&] { return parse_method(name); });
    for (const auto& [key, each] : value.items()) {
      if (key == "method" || each.is_null() || (key == "pin" && each.is_boolean())) continue;
      if (each.is_structured()) fields.refuse(key.c_str(), "must be a number or a string");
      const std::string text = each.is_string()                         ? each.get<std::string>()
                               : each.is_boolean() && key != "lossless" ? (each.get<bool>() ? "on" : "off")
                                                                        : each.dump();
      parse_field(fields.path(key.c_str()), [&] { set_option(method, key, text); });
    }
  }
  if (method.split != fallback.split && method.split == Split::kFile)
    fail_field("cache.split", "'cache.split' may name a file only in the server's own --method");
  if (method.scorer != fallback.scorer && method.scorer != "auto")
    fail_field("cache.scorer", "'cache.scorer' may name a file only in the server's own --method");
  parse_field("cache", [&] { validate(method); });
  return method;
}

void read_stream_reports(JsonFields& fields, CompletionRequest& out) {
  out.timings = fields.boolean("timings_per_token", false);
  out.progress = fields.boolean("return_progress", false);
}

void read_cache_fields(JsonFields& fields, const ServedModel& model, CompletionInput& out) {
  Request& request = out.request.request;
  const Json* cache = fields.take("cache");
  out.request.has_cache = cache != nullptr;
  request.method = cache == nullptr ? model.method : parse_cache(*cache, model.method);
  if (Method& m = request.method; m.name == kAutoMethod && m.budget == kAutoBudget) m.budget = model.auto_budget;
  out.pins = pins_prompt(cache);
  request.reuse = read_cache_prompt(fields, out.chat.has_value());
  if (fields.take("n_cache_reuse") != nullptr)
    request.cache_reuse = static_cast<int>(fields.integer("n_cache_reuse", 0, 0, 1 << 30));
  read_session(fields, out.request);
  request.memory = read_memory_view(fields);
  if (request.memory && !out.request.stream) fail_field("memory_events", "'memory_events' needs 'stream': true");
  read_speculative(fields, request);
  read_agent_fields(fields, request);
}

}  // namespace palimpsest
