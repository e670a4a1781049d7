// palimpsest eval: what a method costs in quality, and whether a stream stays what it is.
#include <cmath>
#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/options.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kFooter = R"(Examples:
  palimpsest eval perplexity -f book.txt --method full --method streaming:budget=256 --plot book.svg
  palimpsest eval stream --method streaming --budget 256 --tokens 100000 --plot stream.svg
  palimpsest eval compare -f book.txt --tokens 5000 --method streaming --method streaming:mechanism=shift)";

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  CLI::App* eval =
      app.add_subcommand("eval", "Measure quality: perplexity of a text, an endless stream, two methods held together");
  eval->footer(kFooter);  // its commands inherit it
  eval->require_subcommand(1);
  add_eval_perplexity(*eval, action);
  add_eval_stream(*eval, action);
  add_eval_compare(*eval, action);
}

void add_text_flags(CLI::App& command, TextFlags& flags) {
  command.add_option("-f,--file", flags.file, "the text to read, '-' for standard input")->required();
  command.add_flag("--gutenberg", flags.gutenberg, "cut Project Gutenberg's header and footer");
  command.add_option("--tokens", flags.tokens, "read so many tokens at most; -1: all");
}

TokenText read_tokens(const TextFlags& flags, const Vocabulary& vocabulary) {
  if (flags.tokens != -1 && flags.tokens < 2) fail("--tokens {}: ask for 2 or more, or -1 for all", flags.tokens);
  const PlainText plain = plain_text(read_text(flags.file, "the text"), {.gutenberg = flags.gutenberg});
  TokenText text;
  text.tokens = vocabulary.tokenize(plain.text, /*add_bos=*/true, /*special=*/false);
  text.available = static_cast<long long>(text.tokens.size());
  text.bytes = plain.text.size();
  text.done = plain.done;
  if (text.available < 2) fail("{}: {} tokens are too few to predict any", flags.file, text.available);
  if (flags.tokens > 0 && flags.tokens < text.available) text.tokens.resize(static_cast<std::size_t>(flags.tokens));
  return text;
}

std::string model_name(const Model& model) {
  if (!model.hyper().name.empty()) return model.hyper().name;
  return std::filesystem::path(model.path()).filename().string();
}

nlohmann::json finite(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace palimpsest::cli
