#include "palimpsest/rope_flags.h"

#include <optional>
#include <string>

namespace palimpsest::cli {

void add_rope_flags(CLI::App& command, RopeSettings& s) {
  const char* group = "Rope scaling";
  command
      .add_option("--rope-scaling", s.scaling,
                  "none, linear, yarn, or dynamic (NTK by the base, fixed for the longest text)")
      ->type_name("HOW")
      ->default_str("the model's")
      ->group(group);
  // `unset`: llama.cpp's number for the model's value.
  const auto number = [&](const char* name, std::optional<double>& value, double unset, const char* what,
                          const char* by_default) {
    command
        .add_option_function<double>(
            name, [&value, unset](double given) { value = given == unset ? std::nullopt : std::make_optional(given); },
            what)
        ->type_name("N")
        ->default_str(by_default)
        ->group(group);
  };
  number("--rope-scale", s.scale, 0, "factor of the context: its product with the original one is the trained context",
         "the model's");
  number("--rope-freq-scale", s.freq_scale, 0, "the inverse of --rope-scale", "the model's");
  number("--rope-freq-base", s.freq_base, 0, "base of the frequencies", "the model's");
  command
      .add_option_function<long long>(
          "--yarn-orig-ctx",
          [&s](long long given) { s.original_context = given == 0 ? std::nullopt : std::make_optional(given); },
          "context without scaling, of yarn and dynamic")
      ->type_name("TOKENS")
      ->default_str("the model's")
      ->group(group);
  number("--yarn-ext-factor", s.ext_factor, -1, "share of the original frequencies in YaRN's ramp; 0: linear only",
         "the model's, else 1");
  number("--yarn-attn-factor", s.attn_factor, -1, "factor of YaRN's magnitude, 1 + 0.1 ln(scale)",
         "the model's, else 1");
  number("--yarn-beta-slow", s.beta_slow, -1, "rotations in the original context, below which a frequency is scaled",
         "the model's, else 1");
  number("--yarn-beta-fast", s.beta_fast, -1, "rotations above which a frequency is kept", "the model's, else 32");
}

}  // namespace palimpsest::cli
