// palimpsest eval: quality of methods.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/fit/method_files.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kEvalFooter = R"(Examples:
  palimpsest eval perplexity -f book.txt --method full --method streaming:budget=256 --plot book.json
  palimpsest eval needle --method full --method streaming:budget=256 --method h2o:budget=256
  palimpsest eval stream --method streaming --budget 256 --tokens 100000 --plot stream.json
  palimpsest eval compare -f book.txt --tokens 5000 --method streaming --method streaming:mechanism=shift)";

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  CLI::App* eval = app.add_subcommand("eval", "Measure quality: perplexity, needles, LongBench, RULER, long streams");
  eval->footer(kEvalFooter);  // subcommands inherit it
  eval->require_subcommand(1);
  add_eval_perplexity(*eval, action);
  add_eval_stream(*eval, action);
  add_eval_compare(*eval, action);
  add_eval_needle(*eval, action);
  add_eval_ruler(*eval, action);
  add_eval_checked(*eval, action);
  add_eval_retention(*eval, action);
  add_eval_longbench(*eval, action);
  add_eval_likelihood(*eval, action);
}

void add_text_flags(CLI::App& command, TextFlags& flags) {
  command
      .add_option("-f,--file", flags.files,
                  "text file, '-' for standard input, or a folder of .txt files; may be repeated")
      ->type_name("FILE")
      ->required()
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_flag("--gutenberg", flags.gutenberg, "cut Project Gutenberg's header and footer");
  command.add_option("--tokens", flags.tokens, "max tokens of a text; -1: all");
}

std::vector<std::string> text_files(const std::vector<std::string>& named) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& name : named) {
    std::error_code error;
    if (!fs::is_directory(name, error)) {
      files.push_back(name);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(name, error))
      if (entry.path().extension() == ".txt") found.push_back(entry.path().string());
    if (error) fail("the folder '{}' cannot be read: {}", name, error.message());
    if (found.empty()) fail("the folder '{}' contains no .txt file: name a text", name);
    std::ranges::sort(found);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

std::vector<TokenText> read_tokens(const TextFlags& flags, const Vocabulary& vocabulary) {
  if (flags.tokens != -1 && flags.tokens < 2) fail("--tokens {}: give 2 or more, or -1 for all", flags.tokens);
  std::vector<TokenText> texts;
  for (const std::string& file : text_files(flags.files)) {
    const PlainText plain = plain_text(read_text(file, "the text"), {.gutenberg = flags.gutenberg});
    TokenText text;
    text.file = file;
    text.tokens = vocabulary.tokenize(plain.text, /*add_bos=*/true, /*special=*/false);
    text.available = static_cast<long long>(text.tokens.size());
    text.bytes = plain.text.size();
    text.done = plain.done;
    if (text.available < 2) fail("{}: {} tokens are too few to predict any", file, text.available);
    if (flags.tokens > 0 && flags.tokens < text.available) text.tokens.resize(static_cast<std::size_t>(flags.tokens));
    texts.push_back(std::move(text));
  }
  return texts;
}

CacheUse::CacheUse(const std::string& name_, const SessionOptions& options)
    : name(name_),
      method(spell_out(options.method)),
      protection(spell_protection(options.method)),
      budget(options.method.budget),
      sinks(options.method.sinks()),
      recent(options.method.recent()),
      cache_type(name_of(options.cache_type)) {}

void CacheUse::add(const Cache& cache, long long evicted_now) {
  cache_bytes = std::max(cache_bytes, cache.bytes_in_use() + cache.bytes_tables());
  cache_bytes_peak = std::max(cache_bytes_peak, cache.bytes_peak() + cache.bytes_tables());
  evicted += evicted_now;
}

void CacheUse::set_files(const Decoder& decoder, const SessionOptions& options) {
  files = files_of(MethodPlan(options.method, plan_target(decoder, options)), decoder.model().path());
}

nlohmann::json as_json(const CacheUse& cache_use) {
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& file : cache_use.files)
    files.push_back(
        {{"name", std::filesystem::path(file).filename().string()}, {"bytes", std::filesystem::file_size(file)}});
  return {{"name", cache_use.name},
          {"method", cache_use.method},
          {"budget", cache_use.budget},
          {"protected", cache_use.protection},
          {"sinks", cache_use.sinks},
          {"recent", cache_use.recent},
          {"cache_type", cache_use.cache_type},
          {"cache_bytes", cache_use.cache_bytes},
          {"cache_bytes_peak", cache_use.cache_bytes_peak},
          {"evicted", cache_use.evicted},
          {"files", files}};
}

std::string cache_use_text(const CacheUse& cache_use) {
  return fmt::format("cache and tables {}, {}{} evicted", human_bytes(cache_use.cache_bytes_peak),
                     cache_use.protection.empty() ? "" : cache_use.protection + " protected, ",
                     thousands(cache_use.evicted));
}

void warn_of_nothing_evicted(const CacheUse& cache_use) {
  if (cache_use.budget > 0 && cache_use.evicted == 0)
    fmt::print(
        stderr,
        "palimpsest: {}: no token was evicted: the texts fit into its budget of {}, so the method was not tested\n",
        cache_use.name, cache_use.budget);
}

std::string model_name(const Model& model) {
  if (!model.hyper().name.empty()) return model.hyper().name;
  return std::filesystem::path(model.path()).filename().string();
}

nlohmann::json finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace palimpsest::cli
