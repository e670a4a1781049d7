#include "palimpsest/server/request/common_fields.h"

#include "palimpsest/budget/split.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/server/sessions.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxStops = 16, kMaxStopBytes = 1024;  // each answer has a copy

void read_session(const Json* session, CompletionRequest& out) {
  if (session == nullptr) return;
  JsonFields fields(*session, "session.");
  const auto name = [&](const char* field) {
    const bool given = fields.take(field) != nullptr;
    std::string text = fields.text(field, "");
    if (given && !Sessions::is_name(text))
      fail_field(fields.path(field), "'{}' must be 1 to 64 letters, digits, '.', '_' and '-', the first no '.'",
                 fields.path(field));
    return text;
  };
  out.restore = name("restore");
  out.save = name("save");
  fields.end();
  out.request.keep = !out.save.empty();
}

// {"cache": {"pin": true}}
bool pins_prompt(const Json* cache) {
  if (cache == nullptr || !cache->is_object()) return false;
  const auto pin = cache->find("pin");
  return pin != cache->end() && pin->is_boolean() && pin->get<bool>();
}

// true, false, or {"layer": n, "head": n}
std::optional<MemoryView> read_memory_view(const Json* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>() ? std::optional(MemoryView()) : std::nullopt;
  if (!value->is_object())
    fail_field("memory_events", "'memory_events' must be true, false, or an object with 'layer' and 'head'");
  JsonFields fields(*value, "memory_events.");
  constexpr int kMax = 1 << 20;
  const MemoryView view{.layer = static_cast<int>(fields.integer("layer", 0, 0, kMax)),
                        .head = static_cast<int>(fields.integer("head", 0, 0, kMax))};
  fields.end();
  return view;
}

// {"type": "lookup", "max": 8}
void read_speculative(const Json* speculative, Request& out) {
  if (speculative == nullptr) return;
  JsonFields of(*speculative, "speculative.");
  if (const std::string type = of.text("type", "lookup"); type != "lookup")
    fail_field("speculative.type", "'speculative.type' is '{}': lookup is supported", type);
  out.drafts.max = static_cast<int>(of.integer("max", DraftOptions().max, 1, kMaxDrafts));
  out.drafts.min = static_cast<int>(of.integer("min", 0, 0, out.drafts.max));
  of.end();
}

// Whether the request continues from kept caches, and leaves its own: prefixes do not change an answer, histories may.
Reuse read_cache_prompt(JsonFields& fields, bool chat) {
  if (fields.boolean("cache_prompt", chat)) return Reuse::kHistories;
  return fields.take("cache_prompt") == nullptr ? Reuse::kPrefixes : Reuse::kNothing;
}

}  // namespace

void read_stop(const Json* stop, const std::string& name, std::vector<std::string>& out) {
  if (stop == nullptr) return;
  if (stop->is_array() && stop->size() > kMaxStops)
    fail_field(name, "'{}' has {} strings: give at most {}", name, stop->size(), kMaxStops);
  const Json list = stop->is_array() ? *stop : Json::array({*stop});
  for (const Json& each : list) {
    if (!each.is_string()) fail_field(name, "'{}' must be a string or a list of strings", name);
    out.push_back(each.get<std::string>());
    if (out.back().size() > kMaxStopBytes)
      fail_field(name, "'{}' has a string of {} bytes: give at most {}", name, out.back().size(), kMaxStopBytes);
  }
}

Method parse_cache(const Json& value, const Method& fallback) {
  Method method = fallback;
  if (value.is_string()) {
    method = parse_method(value.get<std::string>());
  } else {
    JsonFields fields(value, "cache.");
    if (const std::string name = fields.text("method", ""); !name.empty()) method = parse_method(name);
    for (const auto& [key, each] : value.items()) {
      if (key == "method" || each.is_null() || (key == "pin" && each.is_boolean())) continue;
      if (each.is_structured()) fail_field("cache." + key, "'cache.{}' must be a number or a string", key);
      const std::string text = each.is_string()    ? each.get<std::string>()
                               : each.is_boolean() ? (each.get<bool>() ? "on" : "off")
                                                   : each.dump();
      set_option(method, key, text);
    }
  }
  if (method.split != fallback.split && method.split == Split::kFile)
    fail_field("cache.split", "'split' may name a file only in the server's own --method");
  if (method.scorer != fallback.scorer && method.scorer != "auto")
    fail_field("cache.scorer", "'scorer' may name a file only in the server's own --method");
  validate(method);
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
  read_session(fields.take("session"), out.request);
  request.memory = read_memory_view(fields.take("memory_events"));
  if (request.memory && !out.request.stream) fail_field("memory_events", "'memory_events' needs 'stream': true");
  read_speculative(fields.take("speculative"), request);
}

}  // namespace palimpsest
