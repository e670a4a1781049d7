#include "palimpsest/method_list.h"

#include <fmt/format.h>

#include <utility>

namespace palimpsest::cli {

void add_method_list(CLI::App& command, MethodListFlags& flags, std::vector<std::string> defaults) {
  add_cache_flags(command, flags.cache, defaults.front());
  command.remove_option(command.get_option("--method"));
  flags.methods = std::move(defaults);
  command
      .add_option("--method", flags.methods,
                  "method to compare, NAME or NAME:key=value,...; may be repeated (see `palimpsest methods`)")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group("Cache")
      ->expected(1, 100)
      ->type_size(1)
      ->delimiter('\0');
}

std::vector<NamedMethod> method_list(const MethodListFlags& flags, const Hyperparameters& hyper,
                                     const Vocabulary* vocabulary, long long tokens) {
  std::vector<NamedMethod> list;
  for (const auto& name : flags.methods) {
    CacheFlags one = flags.cache;
    one.method = name;
    list.push_back({name, session_options(one, name, hyper, vocabulary, tokens)});
  }
  return list;
}

std::vector<NamedMethod> method_list(const MethodListFlags& flags, const TextModel& model, StepThreads threads,
                                     long long tokens) {
  std::vector<NamedMethod> list;
  for (const auto& name : flags.methods) {
    CacheFlags one = flags.cache;
    one.method = name;
    one.profile_file = profile_of(model, session_options(one, name), threads);
    list.push_back({name, session_options(one, name, model.model->hyper(), model.vocabulary.get(), tokens)});
  }
  return list;
}

std::string protection_line(const std::vector<NamedMethod>& list) {
  std::string line;
  for (const NamedMethod& method : list)
    if (const std::string what = spell_protection(method.options.method); !what.empty())
      line += fmt::format("{}{}: {}", line.empty() ? "protected: " : "; ", method.name, what);
  return line.empty() ? "protected: all tokens (no eviction)" : line;
}

}  // namespace palimpsest::cli
