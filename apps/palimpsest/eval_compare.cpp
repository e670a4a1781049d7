// palimpsest eval compare: compares the logits of methods with those of the first, step by step.
#include "palimpsest/eval/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"

namespace palimpsest::cli {
namespace {

struct CompareFlags {
  ModelFlags model;
  MethodListFlags list;
  TextFlags text;
  ThreadFlags threads;
  double tolerance = 1e-5;
  std::vector<std::string> types;
  bool json = false, check = false;
};

// "q8_0", or of keys and of values: "q8_0/q4".
CacheTypes types_of(const std::string& text) {
  const auto slash = text.find('/');
  if (slash == std::string::npos) return parse_cache_type(text, "cache type");
  return {parse_cache_type(text.substr(0, slash), "type of keys"),
          parse_cache_type(text.substr(slash + 1), "type of values")};
}

// The first method with its own cache types, and with each of `types`.
void compare_types(const std::vector<std::string>& types, std::vector<NamedMethod>& list) {
  const std::string method = list.front().name;
  list.resize(1);
  list.front().name = fmt::format("{}, {}", method, name_of(list.front().options.cache_type));
  for (const std::string& type : types) {
    list.push_back(list.front());
    list.back().options.cache_type = types_of(type);
    list.back().name = fmt::format("{}, {}", method, type);
  }
}

int run_compare(const CompareFlags& flags) {
  const auto model = load_model(flags.model);
  if (model->path().empty()) fail("a synthetic model has no vocabulary to read a text with: name a file with -m");
  const auto vocabulary = Vocabulary::load(model->path(), model->options().overrides);
  const std::vector<TokenText> texts = read_tokens(flags.text, *vocabulary);
  if (texts.size() != 1) fail("{} texts: this command takes one text (-f)", texts.size());
  const TokenText& text = texts.front();
  const auto steps = static_cast<long long>(text.tokens.size());
  auto list = method_list(flags.list, model->hyper(), vocabulary.get(), steps);
  if (!flags.types.empty()) compare_types(flags.types, list);
  if (list.size() < 2) fail("name two methods or more with --method: the first is the reference");
  const auto decoder = std::make_shared<Decoder>(model, threads_of(flags.threads, model->hyper()));
  std::vector<std::unique_ptr<Session>> sessions;
  std::vector<Session*> others;
  for (const auto& method : list) sessions.push_back(std::make_unique<Session>(decoder, method.options));
  for (std::size_t i = 1; i < sessions.size(); ++i) others.push_back(sessions[i].get());

  Progress bar("compare", "tokens");
  const auto rows = compare(*sessions.front(), others, text.tokens, flags.tolerance, [&](int done, int total) {
    bar.update(done, total);
    return !interrupted();
  });
  bar.clear();

  bool same = true;
  nlohmann::json out = nlohmann::json::array();
  std::size_t width = 6;
  for (const auto& method : list) width = std::max(width, method.name.size());
  if (!flags.json) {
    fmt::print("{}, {} steps of one token, {} cache; against {}\n", model_name(*model), thousands(rows.front().steps),
               name_of(cache_types_of(flags.list.cache)), list.front().name);
    fmt::print("{:<{}}  {:>12}  {:>8}  {:>10}  {:>8}  {:>8}  {:>8}\n", "method", width, "max rel", "at step", "mean KL",
               "same top", "flipped", "evicted");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& row = rows[i];
    same = same && row.max_difference <= flags.tolerance && row.flipped == 0;
    const long long evicted = others[i]->cache().evicted();
    if (!flags.json)
      fmt::print("{:<{}}  {:>12.3g}  {:>8}  {:>10.3g}  {:>8}  {:>8}  {:>8}\n", list[i + 1].name, width,
                 row.max_difference, thousands(row.max_difference_step), row.mean_kl, thousands(row.same_top),
                 thousands(row.flipped), thousands(evicted));
    out.push_back({{"reference", spell_out(list.front().options.method)},
                   {"method", spell_out(list[i + 1].options.method)},
                   {"protected", spell_protection(list[i + 1].options.method)},
                   {"steps", row.steps},
                   {"max_relative_difference", finite(row.max_difference)},
                   {"greatest_step", row.max_difference_step},
                   {"mean_kl", finite(row.mean_kl)},
                   {"same_top", row.same_top},
                   {"flipped", row.flipped},
                   {"evicted", evicted}});
  }
  if (!flags.json) fmt::print("{}\n", protection_line(list));
  if (flags.json)
    fmt::print("{}\n", nlohmann::json{{"model", model_name(*model)},
                                      {"cache_type", name_of(cache_types_of(flags.list.cache))},
                                      {"tolerance", flags.tolerance},
                                      {"rows", out}}
                           .dump(2));
  if (interrupted()) return kInterrupted;
  if (flags.check && !same) {
    fmt::print(stderr, "palimpsest: the methods differ by more than {:g}\n", flags.tolerance);
    return 1;
  }
  return kOk;
}

}  // namespace

void add_eval_compare(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* command = eval.add_subcommand("compare", "Compare the logits of several methods on one text");
  add_text_model_flags(*command, flags->model);
  add_text_flags(*command, flags->text);
  add_method_list(*command, flags->list, {"streaming:mechanism=in-place", "streaming:mechanism=shift"});
  add_thread_flags(*command, flags->threads);
  command
      ->add_option("--tolerance", flags->tolerance,
                   "max relative difference of logits; also the min difference of the top two tokens that counts")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--types", flags->types,
                   "compare cache types, not methods: the first method in --cache-type against these, as q8_0,q8_0/q4 "
                   "(keys/values)")
      ->type_name("TYPE,...")
      ->delimiter(',');
  command->add_flag("--check", flags->check, "exit with 1 if a method exceeds the tolerance");
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_compare(*flags); }; });
}

}  // namespace palimpsest::cli
