// The options of samplers by name: for requests, metadata of model files, /props and Python. Their ranges.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "palimpsest/text/sampler_options.h"

namespace palimpsest {

class Vocabulary;

// A number.
struct SamplerField {
  const char* name;   // llama-server's
  const char* alias;  // vLLM's or Ollama's, if it is another; else nullptr
  std::variant<float SamplerOptions::*, int SamplerOptions::*> member;
  double min, max;
  const char* range;  // in words
};
std::span<const SamplerField> sampler_fields();
// "top_p is 2: give ..." if the option is out of its range; `name`: the field's name or alias.
std::optional<std::string> outside(const SamplerField& field, const char* name, const SamplerOptions& options);

// By name or alias. False: there is no such field. Throws Error for a number out of its range.
bool set_number(SamplerOptions& options, std::string_view name, double value);

// "top_k", "typ_p", ...: llama.cpp's names.
const char* name_of(SamplerKind kind);
std::optional<SamplerKind> sampler_kind(std::string_view name);
// "top_k;top_p;temperature", or llama.cpp's letters: "kpt". Throws Error.
std::vector<SamplerKind> parse_samplers(std::string_view text);

// The first option out of its range; nullopt: none. `vocabulary` may be nullptr (synthetic models).
struct SamplerMisfit {
  std::string name, message;
};
std::optional<SamplerMisfit> misfit(const SamplerOptions& options, const Vocabulary* vocabulary);
void check(const SamplerOptions& options, const Vocabulary* vocabulary);  // throws Error

// The model file's recommendation (general.sampling.*); SamplerOptions' own defaults where it has none. Throws Error
// for what is no number in its range.
SamplerOptions recommended_sampling(const Vocabulary& vocabulary);

}  // namespace palimpsest
