#include "palimpsest/text/sampler_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "palimpsest/core/error.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

using O = SamplerOptions;

constexpr double kMaxInt = std::numeric_limits<int>::max();
constexpr int kMaxWindow = 1'000'000;  // tokens that penalties and DRY remember

constexpr SamplerField kFields[] = {
    {"temperature", "temp", &O::temperature, -1000, 1000,
     "a number up to 1000 (0 and less: always the likeliest token)"},
    {"dynatemp_range", nullptr, &O::dynatemp_range, 0, 1000, "0 to 1000 (0: off)"},
    {"dynatemp_exponent", nullptr, &O::dynatemp_exponent, 0, 1000, "0 to 1000"},
    {"top_k", nullptr, &O::top_k, -kMaxInt, kMaxInt, "a number of tokens (0 and less: off)"},
    {"top_p", nullptr, &O::top_p, 0, 1, "a probability from 0 to 1 (1: off)"},
    {"min_p", nullptr, &O::min_p, 0, 1, "a probability from 0 to 1 (0: off)"},
    {"top_n_sigma", nullptr, &O::top_n_sigma, -1000, 1000,
     "a number of standard deviations up to 1000 (0 and less: off)"},
    {"typical_p", "typical", &O::typical_p, 0, 1, "a probability from 0 to 1 (1: off)"},
    {"min_keep", nullptr, &O::min_keep, 0, kMaxInt, "a number of tokens, 0 or more"},
    {"xtc_probability", nullptr, &O::xtc_probability, 0, 1, "a probability from 0 to 1 (0: off)"},
    {"xtc_threshold", nullptr, &O::xtc_threshold, 0, 1, "a probability from 0 to 1 (above 0.5: off)"},
    {"repeat_last_n", "penalty_last_n", &O::penalty_last_n, -1, kMaxWindow,
     "0 to 1000000 tokens (0: off, -1: the trained context)"},
    {"repeat_penalty", "repetition_penalty", &O::repeat_penalty, 0.01F, 100, "0.01 to 100 (1: off)"},
    {"presence_penalty", nullptr, &O::presence_penalty, -100, 100, "-100 to 100 (0: off)"},
    {"frequency_penalty", nullptr, &O::frequency_penalty, -100, 100, "-100 to 100 (0: off)"},
    {"dry_multiplier", nullptr, &O::dry_multiplier, 0, 1000, "0 to 1000 (0: off)"},
    {"dry_base", nullptr, &O::dry_base, 1, 1000, "1 to 1000"},
    {"dry_allowed_length", nullptr, &O::dry_allowed_length, 0, kMaxWindow, "0 to 1000000 tokens"},
    {"dry_penalty_last_n", nullptr, &O::dry_penalty_last_n, -1, kMaxWindow,
     "0 to 1000000 tokens (0: off, -1: the trained context)"},
    {"mirostat", nullptr, &O::mirostat, 0, 2, "1 or 2 (0: off)"},
    {"mirostat_tau", nullptr, &O::mirostat_tau, 0, 1000, "0 to 1000 bits"},
    {"mirostat_eta", nullptr, &O::mirostat_eta, 0, 1000, "0 to 1000"},
};

struct Kind {
  SamplerKind kind;
  const char* name;
  char letter;
  const char* alias;
};
constexpr Kind kKinds[] = {
    {SamplerKind::kPenalties, "penalties", 'e', "penalties"},
    {SamplerKind::kDry, "dry", 'd', "dry"},
    {SamplerKind::kTopNSigma, "top_n_sigma", 's', "top-n-sigma"},
    {SamplerKind::kTopK, "top_k", 'k', "top-k"},
    {SamplerKind::kTypicalP, "typ_p", 'y', "typical_p"},
    {SamplerKind::kTopP, "top_p", 'p', "top-p"},
    {SamplerKind::kMinP, "min_p", 'm', "min-p"},
    {SamplerKind::kXtc, "xtc", 'x', "xtc"},
    {SamplerKind::kTemperature, "temperature", 't', "temp"},
};

// GGUF keys and the options they recommend, by sampler_fields' name.
constexpr std::pair<llama_model_meta_key, std::string_view> kKeys[] = {
    {LLAMA_MODEL_META_KEY_SAMPLING_TOP_K, "top_k"},
    {LLAMA_MODEL_META_KEY_SAMPLING_TOP_P, "top_p"},
    {LLAMA_MODEL_META_KEY_SAMPLING_MIN_P, "min_p"},
    {LLAMA_MODEL_META_KEY_SAMPLING_XTC_PROBABILITY, "xtc_probability"},
    {LLAMA_MODEL_META_KEY_SAMPLING_XTC_THRESHOLD, "xtc_threshold"},
    {LLAMA_MODEL_META_KEY_SAMPLING_TEMP, "temperature"},
    {LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_LAST_N, "repeat_last_n"},
    {LLAMA_MODEL_META_KEY_SAMPLING_PENALTY_REPEAT, "repeat_penalty"},
    {LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT, "mirostat"},
    {LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_TAU, "mirostat_tau"},
    {LLAMA_MODEL_META_KEY_SAMPLING_MIROSTAT_ETA, "mirostat_eta"},
};

void set(SamplerOptions& options, const SamplerField& field, double value) {
  std::visit([&](auto member) { options.*member = static_cast<std::decay_t<decltype(options.*member)>>(value); },
             field.member);
}

}  // namespace

std::span<const SamplerField> sampler_fields() {
  return kFields;
}

std::optional<std::string> outside(const SamplerField& field, const char* name, const SamplerOptions& options) {
  return std::visit(
      [&](auto member) -> std::optional<std::string> {
        const auto value = options.*member;
        if (value >= field.min && value <= field.max) return std::nullopt;
        return fmt::format("{} is {}: give {}", name, value, field.range);
      },
      field.member);
}

bool set_number(SamplerOptions& options, std::string_view name, double value) {
  for (const SamplerField& field : kFields) {
    if (name != field.name && (field.alias == nullptr || name != field.alias)) continue;
    const bool whole = std::holds_alternative<int SamplerOptions::*>(field.member);
    if (whole ? !(std::abs(value) <= kMaxInt) || value != std::trunc(value) : std::isinf(value))
      fail("{} is {}: give {}", name, value, field.range);
    set(options, field, value);
    if (const auto bad = outside(field, field.name, options)) fail("{}", *bad);
    return true;
  }
  return false;
}

const char* name_of(SamplerKind kind) {
  return std::ranges::find(kKinds, kind, &Kind::kind)->name;
}

std::optional<SamplerKind> sampler_kind(std::string_view name) {
  for (const Kind& each : kKinds)
    if (name == each.name || name == each.alias) return each.kind;
  return std::nullopt;
}

std::vector<SamplerKind> parse_samplers(std::string_view text) {
  std::vector<SamplerKind> out;
  const auto letter = [](char c) { return std::ranges::find(kKinds, c, &Kind::letter); };
  if (!sampler_kind(text) && std::ranges::all_of(text, [&](char c) { return letter(c) != std::end(kKinds); })) {
    for (const char c : text) out.push_back(letter(c)->kind);
    return out;
  }
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    const auto kind = sampler_kind(name);
    if (!kind) {
      std::vector<const char*> names;
      for (const Kind& each : kKinds) names.push_back(each.name);
      fail("there is no sampler '{}': give names of {}, as in top_k;top_p;temperature", name, fmt::join(names, ", "));
    }
    out.push_back(*kind);
  }
  return out;
}

std::optional<SamplerMisfit> misfit(const SamplerOptions& o, const Vocabulary* vocabulary) {
  const auto bad = [](const char* name, std::string message) {
    return std::optional(SamplerMisfit{name, std::move(message)});
  };
  for (const SamplerField& field : kFields)
    if (auto message = outside(field, field.name, o)) return SamplerMisfit{field.name, *std::move(message)};
  const auto known = [&](TokenId token) { return token >= 0 && (vocabulary == nullptr || token < vocabulary->size()); };
  for (const auto& [token, bias] : o.logit_bias) {
    if (!known(token)) return bad("logit_bias", fmt::format("logit_bias: there is no token {}", token));
    if (!(bias >= -1000 && bias <= 1000))
      return bad("logit_bias", fmt::format("a logit_bias is {}: give -1000 to 1000", bias));
  }
  for (const TokenId token : o.stop_tokens)
    if (!known(token)) return bad("stop_token_ids", fmt::format("stop_token_ids: there is no token {}", token));
  if (o.min_tokens < 0) return bad("min_tokens", fmt::format("min_tokens is {}: give 0 or more", o.min_tokens));
  if (o.min_tokens > 0 && o.constrained())
    return bad("min_tokens",
               "min_tokens with a grammar: the text must end where the grammar ends; use only one of them");
  constexpr std::size_t kMaxBreakers = 32, kMaxBreakerBytes = 40;  // libllama's limit of bytes
  if (o.dry_breakers.size() > kMaxBreakers)
    return bad("dry_sequence_breakers",
               fmt::format("dry_sequence_breakers has {} texts: give at most {}", o.dry_breakers.size(), kMaxBreakers));
  for (const std::string& breaker : o.dry_breakers)
    if (breaker.empty() || breaker.size() > kMaxBreakerBytes)
      return bad("dry_sequence_breakers", fmt::format("dry_sequence_breakers has a text of {} bytes: give 1 to {}",
                                                      breaker.size(), kMaxBreakerBytes));
  for (std::size_t i = 0; i < o.samplers.size(); ++i)
    if (std::find(o.samplers.begin(), o.samplers.begin() + static_cast<std::ptrdiff_t>(i), o.samplers[i]) !=
        o.samplers.begin() + static_cast<std::ptrdiff_t>(i))
      return bad("samplers", fmt::format("samplers has {} twice: give it once", name_of(o.samplers[i])));
  if (vocabulary == nullptr && o.constrained())
    return bad("grammar", "a grammar needs a vocabulary: synthetic models have none");
  if (vocabulary == nullptr && o.dry_multiplier > 0)
    return bad("dry_multiplier", "DRY needs a vocabulary: synthetic models have none");
  if (vocabulary != nullptr && vocabulary->trained_context() > 0) return std::nullopt;
  for (const auto& [tokens, name] :
       {std::pair(o.penalty_last_n, "repeat_last_n"), {o.dry_penalty_last_n, "dry_penalty_last_n"}})
    if (tokens < 0)
      return bad(name, fmt::format("{} is -1, but the model has no trained context: give a number", name));
  return std::nullopt;
}

void check(const SamplerOptions& options, const Vocabulary* vocabulary) {
  if (const auto bad = misfit(options, vocabulary)) fail("{}", bad->message);
}

SamplerOptions recommended_sampling(const Vocabulary& vocabulary) {
  SamplerOptions out;
  for (const auto& [id, name] : kKeys) {
    const char* const key = llama_model_meta_key_str(id);
    const auto text = vocabulary.metadata(key);
    if (!text) continue;
    const SamplerField& field =
        *std::ranges::find(kFields, name, [](const SamplerField& each) { return std::string_view(each.name); });
    double value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    const bool number =
        error == std::errc() && end == text->data() + text->size() && value >= -kMaxInt && value <= kMaxInt;
    if (number) set(out, field, value);
    if (!number || outside(field, field.name, out))
      fail("'{}' recommends {} = '{}': {}; replace it with --override-kv {}={}:VALUE", vocabulary.path(), key, *text,
           number ? *outside(field, field.name, out) : fmt::format("give {}", field.range), key,
           std::holds_alternative<int SamplerOptions::*>(field.member) ? "int" : "float");
  }
  const char* const order = llama_model_meta_key_str(LLAMA_MODEL_META_KEY_SAMPLING_SEQUENCE);
  if (const auto text = vocabulary.metadata(order)) {
    try {
      out.samplers = parse_samplers(*text);
    } catch (const Error& error) {
      fail("'{}' recommends {} = '{}': {}; replace it with --override-kv {}=str:NAMES", vocabulary.path(), order, *text,
           error.what(), order);
    }
  }
  check(out, &vocabulary);
  return out;
}

}  // namespace palimpsest
