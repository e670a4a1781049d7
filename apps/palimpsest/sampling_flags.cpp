#include "palimpsest/sampling_flags.h"

#include "palimpsest/core/error.h"
#include "palimpsest/system.h"
#include "palimpsest/text/sampler_fields.h"

namespace palimpsest::cli {

void add_sampling_flags(CLI::App& command, SamplingFlags& flags) {
  const char* group = "Sampling (defaults: the model file's general.sampling.*, else these)";
  const auto number = [&](const char* name, auto member, const char* type, const char* what) {
    CLI::Option* option =
        command.add_option(name, flags.options.*member, what)->type_name(type)->group(group)->capture_default_str();
    flags.given.push_back([option, member, from = &flags](SamplerOptions& to) {
      if (option->count() == 0) return;
      to.*member = from->options.*member;
      for (const SamplerField& field : sampler_fields())
        if (field.member == decltype(field.member)(member))
          if (const auto bad = outside(field, option->get_name().c_str(), to)) fail("{}", *bad);
    });
  };
  using O = SamplerOptions;
  number("--temp", &O::temperature, "T", "temperature; 0 and less: greedy");
  number("--top-k", &O::top_k, "K", "top-k sampling; 0: off");
  number("--top-p", &O::top_p, "P", "top-p sampling; 1: off");
  number("--min-p", &O::min_p, "P", "min-p sampling: min probability relative to the most likely token; 0: off");
  number("--typical,--typical-p", &O::typical_p, "P", "locally typical sampling; 1: off");
  number("--top-nsigma,--top-n-sigma", &O::top_n_sigma, "N",
         "top-n-sigma sampling: standard deviations of the logits; 0 and less: off");
  number("--min-keep", &O::min_keep, "N", "min number of tokens that --typical, --top-p, --min-p and XTC keep");
  number("--xtc-probability", &O::xtc_probability, "P", "XTC: probability of excluding top choices; 0: off");
  number("--xtc-threshold", &O::xtc_threshold, "P", "XTC: min probability of a top choice; above 0.5: off");
  number("--dynatemp-range", &O::dynatemp_range, "X", "dynamic temperature: --temp plus and minus this; 0: off");
  number("--dynatemp-exp", &O::dynatemp_exponent, "X", "dynamic temperature: exponent of the entropy");
  number("--mirostat", &O::mirostat, "N", "Mirostat version 1 or 2, instead of top-k to XTC; 0: off");
  number("--mirostat-ent", &O::mirostat_tau, "X", "Mirostat: target entropy tau, in bits");
  number("--mirostat-lr", &O::mirostat_eta, "X", "Mirostat: learning rate eta");
  number("--repeat-penalty", &O::repeat_penalty, "X", "repetition penalty of the last --repeat-last-n tokens; 1: off");
  number("--frequency-penalty", &O::frequency_penalty, "X",
         "frequency penalty of the last --repeat-last-n tokens; 0: off");
  number("--presence-penalty", &O::presence_penalty, "X",
         "presence penalty of the last --repeat-last-n tokens; 0: off");
  number("--repeat-last-n", &O::penalty_last_n, "N",
         "number of tokens that penalties apply to; 0: off; -1: the trained context");
  number("--dry-multiplier", &O::dry_multiplier, "X", "DRY: penalty of tokens that continue a repetition; 0: off");
  number("--dry-base", &O::dry_base, "X", "DRY: factor of the penalty for each token of the repetition");
  number("--dry-allowed-length", &O::dry_allowed_length, "N", "DRY: length of repetitions without the factor");
  number("--dry-penalty-last-n", &O::dry_penalty_last_n, "N",
         "DRY: number of tokens to search for repetitions; 0: off; -1: the trained context");
  CLI::Option* breakers =
      command
          .add_option("--dry-sequence-breaker", flags.breakers,
                      "DRY: a text that repetitions do not extend over; may be repeated; none: no such "
                      "text")
          ->type_name("TEXT")
          ->allow_extra_args(false)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
          ->default_str("newline, :, \", *")
          ->group(group);
  flags.given.push_back([breakers, from = &flags](SamplerOptions& to) {
    if (breakers->count() == 0) return;
    to.dry_breakers = from->breakers;
    if (to.dry_breakers == std::vector<std::string>{"none"}) to.dry_breakers.clear();
  });
  CLI::Option* order = command
                           .add_option("--samplers", flags.samplers,
                                       "samplers in their order, as in top_k;top_p;temperature; the others are off")
                           ->type_name("NAMES")
                           ->default_str("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature")
                           ->group(group);
  flags.given.push_back([order, from = &flags](SamplerOptions& to) {
    if (order->count() > 0) to.samplers = parse_samplers(from->samplers);
  });
  command
      .add_option(
          "-s,--seed", flags.seed,
          "random seed; the same seed, model and flags give the same text with any number of threads; -1: random")
      ->type_name("N")
      ->default_str("random")
      ->group(group);
}

void add_grammar_flags(CLI::App& command, SamplingFlags& flags) {
  const char* group = "Grammar";
  command.add_option("--grammar", flags.grammar, "GBNF grammar that constrains the text")
      ->type_name("TEXT")
      ->group(group);
  command.add_option("--grammar-file", flags.grammar_file, "GBNF grammar from a file")
      ->type_name("FILE")
      ->excludes("--grammar")
      ->group(group);
}

SamplerOptions sampler_options(const SamplingFlags& flags, const Vocabulary* vocabulary) {
  SamplerOptions out = vocabulary == nullptr ? SamplerOptions() : recommended_sampling(*vocabulary);
  for (const auto& take : flags.given) take(out);
  if (flags.seed && (*flags.seed < -1 || *flags.seed > kRandomSeed))
    fail("--seed {}: give a number up to {}, or -1 for a random one", *flags.seed, kRandomSeed - 1);
  if (flags.seed) out.seed = static_cast<std::uint32_t>(*flags.seed);  // -1 is kRandomSeed
  out.grammar = flags.grammar;
  if (!flags.grammar_file.empty()) {
    out.grammar = read_text(flags.grammar_file, "the grammar file");
    if (out.grammar.empty()) fail("the grammar file '{}' is empty", flags.grammar_file);
  }
  return out;
}

}  // namespace palimpsest::cli
