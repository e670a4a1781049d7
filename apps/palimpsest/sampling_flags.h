// Flags of sampling, of run, chat, serve and eval stream. A flag replaces what the model file recommends.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "palimpsest/text/sampler_options.h"

namespace palimpsest {
class Vocabulary;
}

namespace palimpsest::cli {

struct SamplingFlags {
  SamplerOptions options;  // as parsed; sampler_options() takes what was given
  std::optional<long long> seed;
  std::string samplers, grammar, grammar_file;
  std::vector<std::string> breakers;
  std::vector<std::function<void(SamplerOptions&)>> given;  // each copies one option, if its flag was given

  bool constrained() const { return !grammar.empty() || !grammar_file.empty(); }
};
void add_sampling_flags(CLI::App& command, SamplingFlags& flags);
void add_grammar_flags(CLI::App& command, SamplingFlags& flags);
// Throws Error for bad flags. `vocabulary`: nullptr: without the model file's recommendation.
SamplerOptions sampler_options(const SamplingFlags& flags, const Vocabulary* vocabulary);

}  // namespace palimpsest::cli
