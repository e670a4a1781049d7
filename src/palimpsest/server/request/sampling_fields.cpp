#include "palimpsest/server/request/sampling_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "palimpsest/core/error.h"
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
          fail_field(field.alias, "'{}' and '{}' mean the same, and differ: give one", field.alias, field.name);
      },
      field.member);
  if (const auto bad = outside(field, name, out)) fail_field(fields.path(name), "{}", *bad);
}

// llama-server's form has `false` for tokens that are never sampled.
float bias_of(const Json& value, const std::string& token) {
  if (value.is_boolean() && !value.get<bool>()) return -100;
  if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
    fail_field("logit_bias", "'logit_bias.{}' must be a number from -100 to 100", token);
  return value.get<float>();
}

// OpenAI's {"TOKEN": bias, ...}, or llama-server's [[TOKEN, bias], ["text", bias], ...].
void read_bias(const Json* bias, const Vocabulary& vocabulary, SamplerOptions& out) {
  if (bias == nullptr) return;
  out.logit_bias.clear();
  if (!bias->is_structured() || bias->size() > kMaxBiased)
    fail_field("logit_bias", "'logit_bias' must be an object with at most {} tokens", kMaxBiased);
  if (bias->is_array()) {
    for (const Json& pair : *bias) {
      if (!pair.is_array() || pair.size() != 2 || !(pair[0].is_number_integer() || pair[0].is_string()))
        fail_field("logit_bias", "'logit_bias' as a list must have pairs [token, bias] or [\"text\", bias]");
      const float value = bias_of(pair[1], pair[0].dump(-1, ' ', false, Json::error_handler_t::replace));
      if (pair[0].is_string()) {
        for (const TokenId token : vocabulary.tokenize(pair[0].get<std::string>(), false, true))
          out.logit_bias.emplace_back(token, value);
        if (out.logit_bias.size() > kMaxBiased)
          fail_field("logit_bias", "'logit_bias' has texts of more than {} tokens", kMaxBiased);
      } else {
        const auto token = pair[0].get<long long>();
        if (token < 0 || token >= vocabulary.size())
          fail_field("logit_bias", "'logit_bias' has '{}', which is no token", token);
        out.logit_bias.emplace_back(static_cast<TokenId>(token), value);
      }
    }
    return;
  }
  for (const auto& [token, value] : bias->items()) {
    TokenId id = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), id);
    if (error != std::errc() || end != token.data() + token.size() || id < 0)
      fail_field("logit_bias", "'logit_bias' has '{}', which is no token", token);
    out.logit_bias.emplace_back(id, bias_of(value, token));
  }
}

void read_stop_tokens(const Json* list, SamplerOptions& out) {
  if (list == nullptr) return;
  if (!list->is_array() || list->size() > kMaxBiased)
    fail_field("stop_token_ids", "'stop_token_ids' must be a list of at most {} tokens", kMaxBiased);
  out.stop_tokens.clear();
  for (const Json& each : *list) {
    if (!each.is_number_integer() || each.get<long long>() < 0 || each.get<long long>() > INT32_MAX)
      fail_field("stop_token_ids", "'stop_token_ids' has {}, which is no token", each.dump(-1, ' ', true));
    out.stop_tokens.push_back(each.get<TokenId>());
  }
}

void read_breakers(const Json* list, SamplerOptions& out) {
  if (list == nullptr) return;
  const char* const name = "dry_sequence_breakers";
  if (!list->is_array()) fail_field(name, "'{}' must be a list of texts", name);
  out.dry_breakers.clear();
  for (const Json& each : *list) {
    if (!each.is_string()) fail_field(name, "'{}' must be a list of texts", name);
    out.dry_breakers.push_back(each.get<std::string>());
  }
}

// ["top_k", ...], or a text as parse_samplers() takes it.
void read_order(const Json* order, SamplerOptions& out) {
  if (order == nullptr) return;
  if (!order->is_array() && !order->is_string()) fail_field("samplers", "'samplers' must be a list of names");
  std::string names;
  if (order->is_string()) names = order->get<std::string>();
  for (std::size_t i = 0; order->is_array() && i < order->size(); ++i) {
    if (!(*order)[i].is_string()) fail_field("samplers", "'samplers' must be a list of names");
    names += (i == 0 ? "" : ";") + (*order)[i].get<std::string>();
  }
  try {
    out.samplers = parse_samplers(names);
  } catch (const Error& error) {
    fail_field("samplers", "{}", error.what());
  }
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
       {std::pair(out.penalty_last_n, "repeat_last_n"), {out.dry_penalty_last_n, "dry_penalty_last_n"}})
    if (tokens > kMaxRemembered) fail_field(name, "'{}' is {}: give at most {} tokens", name, tokens, kMaxRemembered);
  read_breakers(fields.take("dry_sequence_breakers"), out);
  read_order(fields.take("samplers"), out);
  read_bias(fields.take("logit_bias"), vocabulary, out);
  out.min_tokens = fields.integer("min_tokens", out.min_tokens, 0, kMaxMinTokens);
  read_stop_tokens(fields.take("stop_token_ids"), out);
  // -1 is llama-server's random seed.
  if (fields.take("seed") != nullptr)
    out.seed = static_cast<std::uint32_t>(fields.integer("seed", -1, -1, kRandomSeed));
}

void check_sampling(const SamplerOptions& options, const Vocabulary& vocabulary) {
  if (const auto bad = misfit(options, &vocabulary)) fail_field(bad->name, "{}", bad->message);
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
