#include "palimpsest/server/request/sampling_fields.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "palimpsest/text/sampler_fields.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxBiased = 1024;
constexpr int kMaxRemembered = 1 << 17;  // tokens that penalties and DRY of a request remember: they take memory
constexpr long long kMaxMinTokens = 1LL << 40;

template <typename Number>
Number number_of(JsonFields& fields, const char* name, Number fallback) {
  if constexpr (std::is_same_v<Number, float>) {
    return fields.number(name, fallback);
  } else {
    using Limits = std::numeric_limits<int>;
    return static_cast<int>(fields.integer(name, fallback, Limits::min(), Limits::max()));
  }
}

// A number under its name or its alias.
void read_number(JsonFields& fields, const SamplerField& field, SamplerOptions& out) {
  const bool named = fields.take(field.name) != nullptr;
  const bool aliased = field.alias != nullptr && fields.take(field.alias) != nullptr;
  if (!named && !aliased) return;
  const char* const name = named ? field.name : field.alias;
  std::visit(
      [&](auto member) {
        out.*member = number_of(fields, name, out.*member);
        if (named && aliased && number_of(fields, field.alias, out.*member) != out.*member)
          fields.refuse(field.alias, "and '{}' mean the same, and differ: give one", fields.path(field.name));
      },
      field.member);
  const std::string path = fields.path(name);
  if (const auto bad = outside(field, path.c_str(), out)) fail_field(path, "{}", *bad);
}

// llama-server's form has `false` for tokens that are never sampled.
float bias_of(const JsonFields& fields, const Json& value, const std::string& token) {
  if (value.is_boolean() && !value.get<bool>()) return -100;
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
    fail_field(fields.path("logit_bias"), "'{}.{}' must be a number from -100 to 100", fields.path("logit_bias"),
               token);
  return value.get<float>();
}

// OpenAI's {"TOKEN": bias, ...}, or llama-server's [[TOKEN, bias], ["text", bias], ...].
void read_bias(JsonFields& fields, const Vocabulary& vocabulary, SamplerOptions& out) {
  const char* const name = "logit_bias";
  const Json* bias = fields.take(name);
  if (bias == nullptr) return;
  out.logit_bias.clear();
  if (!bias->is_structured() || bias->size() > kMaxBiased)
    fields.refuse(name, "must be an object with at most {} tokens", kMaxBiased);
  if (bias->is_array()) {
    for (const Json& pair : *bias) {
      if (!pair.is_array() || pair.size() != 2 || !(pair[0].is_number_integer() || pair[0].is_string()))
        fields.refuse(name, "as a list must have pairs [token, bias] or [\"text\", bias]");
      const float value = bias_of(fields, pair[1], dump(pair[0]));
      if (pair[0].is_string()) {
        for (const TokenId token : vocabulary.tokenize(pair[0].get<std::string>(), false, true))
          out.logit_bias.emplace_back(token, value);
        if (out.logit_bias.size() > kMaxBiased) fields.refuse(name, "has texts of more than {} tokens", kMaxBiased);
      } else {
        const auto token = pair[0].get<long long>();
        if (token < 0 || token >= vocabulary.size()) fields.refuse(name, "has '{}', which is no token", token);
        out.logit_bias.emplace_back(static_cast<TokenId>(token), value);
      }
    }
    return;
  }
  for (const auto& [token, value] : bias->items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), id);
    if (error != std::errc() || end != token.data() + token.size() || id < 0)
      fields.refuse(name, "has '{}', which is no token", token);
    out.logit_bias.emplace_back(id, bias_of(fields, value, token));
  }
}

void read_stop_tokens(JsonFields& fields, SamplerOptions& out) {
  const char* const name = "stop_token_ids";
  const Json* list = fields.take(name);
  if (list == nullptr) return;
  if (!list->is_array() || list->size() > kMaxBiased)
    fields.refuse(name, "must be a list of at most {} tokens", kMaxBiased);
  out.stop_tokens.clear();
  for (const Json& each : *list) {
    if (!each.is_number_integer() || each.get<long long>() < 0 || each.get<long long>() > INT32_MAX)
      fields.refuse(name, "has {}, which is no token", each.dump(-1, ' ', true));
    out.stop_tokens.push_back(each.get<TokenId>());
  }
}

// ["top_k", ...], or a text as parse_samplers() takes it.
void read_order(JsonFields& fields, SamplerOptions& out) {
  const Json* order = fields.take("samplers");
  if (order == nullptr) return;
  const std::string names =
      order->is_string() ? order->get<std::string>() : fmt::format("{}", fmt::join(fields.texts("samplers"), ";"));
  out.samplers = parse_field(fields.path("samplers"), [&] { return parse_samplers(names); });
}

// 0.8, not the double 0.800000011920929.
double shortest(float value) {
  return std::stod(fmt::format("{}", value));
}
int shortest(int value) {
  return value;
}

}  // namespace

void read_sampling(JsonFields& fields, const Vocabulary& vocabulary, SamplerOptions& out) {
  for (const SamplerField& field : sampler_fields()) read_number(fields, field, out);
  for (const auto& [tokens, name] :
       {std::pair(out.penalty_last_n, fields.take("penalty_last_n") != nullptr ? "penalty_last_n" : "repeat_last_n"),
        {out.dry_penalty_last_n, "dry_penalty_last_n"}})
    if (tokens > kMaxRemembered) fields.refuse(name, "is {}: give at most {} tokens", tokens, kMaxRemembered);
  if (fields.take("dry_sequence_breakers") != nullptr) out.dry_breakers = fields.texts("dry_sequence_breakers");
  read_order(fields, out);
  read_bias(fields, vocabulary, out);
  out.min_tokens = fields.integer("min_tokens", out.min_tokens, 0, kMaxMinTokens);
  read_stop_tokens(fields, out);
  // -1 is llama-server's random seed.
  if (fields.take("seed") != nullptr)
    out.seed = static_cast<std::uint32_t>(fields.integer("seed", -1, -1, kRandomSeed));
}

void check_sampling(const SamplerOptions& options, const Vocabulary& vocabulary, const std::string& where) {
  if (const auto bad = misfit(options, &vocabulary))
    fail_field(where + bad->name, "{}{}", where.empty() ? "" : "'" + where + bad->name + "': ", bad->message);
}

Json sampling_json(const SamplerOptions& options) {
  Json out = {{"seed", options.seed}};
  for (const SamplerField& field : sampler_fields())
    std::visit([&](auto member) { out[field.name] = shortest(options.*member); }, field.member);
  out["dry_sequence_breakers"] = options.dry_breakers;
  out["min_tokens"] = options.min_tokens;
  out["stop_token_ids"] = options.stop_tokens;
  Json bias = Json::array();
  for (const auto& [token, value] : options.logit_bias) bias.push_back({{"token", token}, {"bias", value}});
  out["logit_bias"] = std::move(bias);
  out["samplers"] = Json::array();
  for (const SamplerKind kind : options.samplers) out["samplers"].push_back(name_of(kind));
  return out;
}

}  // namespace palimpsest
