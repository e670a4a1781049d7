// palimpsest run: continues a prompt. The text goes to standard output, everything else to standard error.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/memory_view.h"
#include "palimpsest/progress.h"
#include "palimpsest/sampling_flags.h"
#include "palimpsest/system.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/stop.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr long long kMaxTokens = 1'000'000'000'000'000;

constexpr const char* kRunFooter =
    R"(The prompt is PROMPT, -p, -f, standard input if it is not a terminal, or empty. A model with a chat template
answers it as a user's message; --raw continues it as text. A line of statistics (tokens, times, cache,
evictions) is printed to standard error at the end.

Examples:
  palimpsest run smollm2 "What is the capital of France?"
  palimpsest run --raw -p "The Lost Kite" -n 200         continues a text
  palimpsest run -n -1 --ignore-eos                      generates until Ctrl-C (exit code 130)
  palimpsest run -f book.txt --method streaming:budget=1024,sinks=8
  palimpsest run --method full --temp 0 -n 100 --json
  palimpsest run -p "One day" --stop "." --stop "!"      one sentence
  palimpsest run -n 500 --save story.snap                saves the state;
  palimpsest run -n 500 --restore story.snap             continues exactly from it
  palimpsest run --restore story.snap --edit '12:15= a red kite'
                                                         replaces tokens 12 to 14 of the text, and continues)";

struct RunFlags {
  ModelFlags model;
  CacheFlags cache;
  SamplingFlags sampling;
  DraftFlags drafts;
  ThreadFlags threads;
  std::optional<std::string> prompt, first, second;  // first, second: arguments without a flag
  bool raw = false;
  std::string prompt_file, save, restore, chat_template;
  std::vector<std::string> edits;
  std::string edit_mode = "reuse";
  GenerateOptions generate{.max_tokens = 512, .stop = {}, .ignore_end = false};
  bool json = false;
  bool show_memory = false;
  std::string memory_file;  // with show_memory: HTML; empty: the terminal
};

// "run MODEL PROMPT", "run MODEL", and "run -m MODEL PROMPT".
void take_arguments(RunFlags& flags) {
  if (!flags.first) return;
  const bool has_model = !flags.model.path.empty() || !flags.model.hub.empty() || !flags.model.synthetic.empty();
  if (has_model && flags.second) fail("two models, -m and '{}': give one model and one prompt", *flags.first);
  std::optional<std::string> prompt = flags.second;
  if (has_model)
    prompt = flags.first;
  else if (!flags.second && flags.first->find_first_of(" \t\n") != std::string::npos)
    fail("'{}' is not a model: a prompt without a model is given with -p", *flags.first);
  else
    flags.model.path = *flags.first;
  if (!prompt) return;
  if (flags.prompt || !flags.prompt_file.empty()) fail("two prompts: give only one of -p, -f and '{}'", *prompt);
  flags.prompt = std::move(prompt);
}

std::string prompt_text(const RunFlags& flags) {
  if (flags.prompt) {
    if (const auto offset = invalid_utf8(*flags.prompt))
      fail("the prompt of -p is not valid UTF-8 at byte {}: check the terminal's encoding", *offset);
    return *flags.prompt;
  }
  if (!flags.prompt_file.empty()) return read_text(flags.prompt_file, "the prompt file");
  return isatty(STDIN_FILENO) == 1 ? std::string() : read_text("-", "");
}

std::vector<TokenId> prompt_tokens(const Vocabulary& vocabulary, const std::string& text,
                                   std::span<const std::size_t> breaks) {
  auto tokens = vocabulary.tokenize_with_breaks(text, true, breaks);
  if (tokens.empty() && vocabulary.bos() >= 0) tokens.push_back(vocabulary.bos());
  if (tokens.empty()) fail("this model has no BOS token: give a prompt with -p");
  return tokens;
}

// Tokens to read after restoring a snapshot: the last generated token, which is unread, then the new text.
std::vector<TokenId> continuation_tokens(const Vocabulary& vocabulary, const SnapshotText& before,
                                         const std::string& text) {
  std::vector<TokenId> tokens = vocabulary.tokenize(text, false, true);
  if (before.unread >= 0) tokens.insert(tokens.begin(), before.unread);
  if (tokens.empty()) fail("the snapshot ends with a prompt token: give a prompt with -p");
  return tokens;
}

// Edits the text of a restored session (docs/edits.md). Its last token may be unread: it stays.
void edit(Session& session, const Vocabulary& vocabulary, const std::string& written, EditMode mode,
          SnapshotText& history) {
  const WrittenEdit edit = parse_edit(written);
  if (const auto offset = invalid_utf8(edit.text)) fail("--edit: the text is not valid UTF-8 at byte {}", *offset);
  const auto tokens = vocabulary.tokenize(std::string(edit.text), false, true);
  std::span<const TokenId> text = history.tokens;
  if (!text.empty() && history.unread >= 0) text = text.first(text.size() - 1);
  session.edit(edit.range.first, edit.range.last, tokens, mode, text);
  if (text.empty()) return;  // a text of unknown tokens
  history.tokens = edited(text, edit.range, tokens);
  if (history.unread >= 0) history.tokens.push_back(history.unread);
}

void print_json(const Session& session, const Session* small, const Sampler& sampler, const Generation& g,
                const std::string& text) {
  const Percentiles tpot = g.tpot.summary();
  const Cache& cache = session.cache();
  nlohmann::ordered_json out;
  out["text"] = text;
  out["tokens"] = g.tokens;
  out["prompt_tokens"] = g.prompt_tokens;
  out["stop"] = name_of(g.finish);
  out["ttft_ms"] = g.ttft_ms;
  const double update = g.tokens > 1 ? g.evictions.evict_ms / static_cast<double>(g.tokens - 1) : 0;
  out["tpot_ms"] = {
      {"mean", tpot.mean}, {"p50", tpot.p50}, {"p99", tpot.p99}, {"forward", tpot.mean - update}, {"update", update}};
  out["tokens_per_second"] = tpot.mean > 0 ? 1000 / tpot.mean : 0;
  out["drafts"] = {{"steps", g.drafts.steps}, {"read", g.drafts.drafts}, {"accepted", g.drafts.accepted}};
  out["evicted"] = cache.evicted();
  out["evictions"] = g.evictions.evictions;
  out["cache_tokens"] = cache.occupied();
  out["cache_bytes"] = cache.bytes_in_use();
  out["cache_bytes_peak"] = cache.bytes_peak();
  out["cache_bytes_tables"] = cache.bytes_tables();
  out["cache_slots_per_token"] = cache.slots_per_token();
  if (const RecallTier* const tier = session.sequence().recall()) out["recall_bytes"] = tier->bytes();
  if (small != nullptr)
    out["lossless"] = {{"method", spell_out(small->method())},
                       {"tokens_per_pass", g.tokens_per_pass()},
                       {"cache_tokens", small->cache().occupied()},
                       {"cache_bytes", small->cache().bytes_in_use()},
                       {"cache_bytes_peak", small->cache().bytes_peak()},
                       {"cache_bytes_tables", small->cache().bytes_tables()}};
  out["rss_bytes_peak"] = resident_bytes_peak();
  out["seed"] = sampler.seed();
  out["method"] = spell_out(session.method());
  out["protected"] = spell_protection(session.method());
  out["model"] = session.decoder().model().path();
  fmt::print("{}\n", out.dump(2));
}

void show_memory(const Session& session, const Vocabulary& vocabulary, const std::string& file) {
  const Position next = session.position();
  const MemoryMap map = session.memory_map({.first = std::max<Position>(0, next - MemoryQuery::kMaxTokens)});
  if (file.empty()) {
    fmt::print(stderr, "{}\npalimpsest: {}\n", memory_text(map, vocabulary, ink_of_terminal()), memory_line(map));
    return;
  }
  std::ofstream out(file, std::ios::binary);
  out << memory_html(map, vocabulary, spell_short(session.method()));
  out.close();
  if (!out) fail("--show-memory {}: the file cannot be written", file);
}

int run(const RunFlags& flags) {
  std::atomic<bool>& cancel = interrupted();
  if (flags.generate.max_tokens < -1 || flags.generate.max_tokens > kMaxTokens)
    fail("-n {}: give a number of tokens up to {}, or -1 for no limit", flags.generate.max_tokens, kMaxTokens);
  if (flags.generate.ignore_end && flags.sampling.constrained())
    fail("--ignore-eos with a grammar: the text must end where the grammar ends; use only one of them");
  sampler_options(flags.sampling, nullptr);  // throws before the model is loaded
  StopStrings{flags.generate.stop};          // throws before a long prompt is read
  const Method method = method_of(flags.cache, kDefaultMethod);
  if (flags.show_memory && !method.cache) fail("--show-memory: method {} has no cache to show", method.name);
  if (!flags.memory_file.empty() && !flags.memory_file.ends_with(".html"))
    fail("--show-memory {}: give a name that ends with .html, or none for the terminal", flags.memory_file);
  const EditMode edit_mode = parse_edit_mode(flags.edit_mode);
  if (!flags.edits.empty() && flags.restore.empty())
    fail("--edit without --restore: an edit changes a text that was read before; change the prompt");
  for (const std::string& written : flags.edits) parse_edit(written);  // throws before the model is loaded
  const int draft_max = draft_max_of(flags.drafts, method);
  std::string text = prompt_text(flags);

  const TextModel loaded = load_text_model(flags.model);
  std::vector<std::size_t> breaks;
  if (!flags.chat_template.empty() && !flags.restore.empty())
    fail("--chat-template with --restore: a snapshot continues as it began; use only one");
  const bool own_template =
      !flags.raw && flags.restore.empty() && !text.empty() && loaded.vocabulary->has_chat_template();
  if (!flags.chat_template.empty() || own_template) {
    ChatPrompt message =
        ChatTemplate::load(loaded.vocabulary, flags.chat_template)->apply(std::vector<ChatMessage>{{"user", text}});
    text = std::move(message.text);
    breaks = std::move(message.breaks);
  }
  auto prompt = flags.restore.empty() ? prompt_tokens(*loaded.vocabulary, text, breaks)
                                      : loaded.vocabulary->tokenize(text, false, true);
  const long long max = flags.generate.max_tokens < 0
                            ? static_cast<long long>(prompt.size())
                            : static_cast<long long>(prompt.size()) + flags.generate.max_tokens;
  const StepThreads threads = threads_of(flags.threads, loaded.model->hyper());
  CacheFlags cache = flags.cache;
  cache.on_host = on_host(flags.model);
  cache.profile_file = profile_of(loaded, session_options(cache, kDefaultMethod), threads);
  if (pins_prompt(cache, kDefaultMethod)) {
    if (!flags.restore.empty())
      fail(
          "--pin-prompt or pin=prompt with --restore: tokens are pinned before they are read; use it where the text "
          "begins");
    pin_prompt(cache, {{0, std::ssize(prompt)}});
  }
  // A prompt that is stopped between two layers cannot be saved.
  if (!cache.layerwise && cache.on_host && !method.lossless && flags.restore.empty() && flags.save.empty()) {
    SessionOptions whole = session_options(cache, kDefaultMethod);
    whole.draft_max = draft_max;
    cache.layerwise = layerwise_saves(loaded.model->hyper(), whole, std::ssize(prompt), max);
  }
  SessionOptions options = session_options(cache, kDefaultMethod, loaded.model->hyper(), loaded.vocabulary.get(), max);
  options.draft_max = draft_max;
  const auto decoder = std::make_shared<Decoder>(loaded.model, threads);
  TextSession text_and_drafts = text_session(decoder, options, flags.drafts, *loaded.vocabulary);
  Session& session = *text_and_drafts.session;
  if (flags.show_memory) session.record_memory();
  Sampler sampler(sampler_options(flags.sampling, loaded.vocabulary.get()), loaded.vocabulary.get(),
                  loaded.vocabulary->size());
  GenerateOptions generate_options = flags.generate;
  SnapshotText history;
  if (!flags.restore.empty()) {
    history = load_snapshot(flags.restore, session, &sampler);
    for (const std::string& written : flags.edits) edit(session, *loaded.vocabulary, written, edit_mode, history);
    prompt = continuation_tokens(*loaded.vocabulary, history, text);
    generate_options.known = history.unread >= 0 ? 1 : 0;
  }
  generate_options.keep = !flags.save.empty();
  if (auto& speculation = text_and_drafts.speculation) {
    speculation->append(history.tokens);
    generate_options.drafts = &*speculation;
  }

  const Session* const small = text_and_drafts.small == nullptr ? nullptr : &text_and_drafts.small->session();
  if (const std::string line = auto_line(session.sequence().plan()); !line.empty())
    fmt::print(stderr, "palimpsest: {}\n", line);

  StandardOutput output;
  std::string collected;  // --json only
  Progress reading("reading", "tokens");
  std::optional<Progress> writing;  // if the text is not printed to a terminal
  const bool silent = flags.json || isatty(STDOUT_FILENO) == 0;
  const auto emit = [&](std::string_view piece) {
    reading.clear();
    if (flags.json)
      collected += piece;
    else
      output.write(piece);
    if (output.closed()) cancel = true;
    if (!silent) return;
    if (!writing) writing.emplace("writing", "tokens");
    writing->update(session.position() - static_cast<long long>(prompt.size()) + 1, flags.generate.max_tokens);
  };
  const Generation g =
      generate(session, sampler, *loaded.vocabulary, prompt, generate_options, emit, cancel, reading_progress(reading));
  reading.clear();
  writing.reset();
  if (flags.json)
    print_json(session, small, sampler, g, collected);
  else
    output.end_line();
  if (flags.show_memory) show_memory(session, *loaded.vocabulary, flags.memory_file);
  fmt::print(stderr, "palimpsest: {}\n", summary_line(g, session, small));
  if (!flags.save.empty()) {
    history.tokens.insert(history.tokens.end(), prompt.begin() + static_cast<std::ptrdiff_t>(generate_options.known),
                          prompt.end());
    history.tokens.insert(history.tokens.end(), g.written.begin(), g.written.end());
    history.unread = g.unread;
    save_snapshot(flags.save, session, &sampler, history);
  }
  return g.finish == Finish::kCancelled && !output.closed() ? kInterrupted : kOk;
}

}  // namespace

void add_run(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("run", "Generate text from a prompt");
  command->footer(kRunFooter);
  const auto flags = std::make_shared<RunFlags>();
  const char* group = "Text";
  command->add_option("MODEL", flags->first, "model, as of -m")->type_name("MODEL");
  command->add_option("PROMPT", flags->second, "prompt, as of -p")->type_name("PROMPT");
  CLI::Option* prompt = command->add_option("-p,--prompt", flags->prompt, "prompt")->type_name("TEXT")->group(group);
  command->add_option("-f,--file", flags->prompt_file, "prompt from a file; -: standard input")
      ->type_name("FILE")
      ->excludes(prompt)
      ->group(group);
  command
      ->add_option("--chat-template", flags->chat_template,
                   std::string("the prompt is a user's message in this ") + kChatTemplateHelp)
      ->type_name("NAME|FILE")
      ->default_str("the model's, if it has one")
      ->group(group);
  command->add_flag("--raw", flags->raw, "the prompt is continued as it is, without a chat template")
      ->excludes("--chat-template")
      ->group(group);
  command
      ->add_option("-n,--n-predict,--tokens", flags->generate.max_tokens, "max tokens to generate; -1: until stopped")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
  command->add_option("--stop", flags->generate.stop, "stop string: the text ends before it; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command->add_flag("--ignore-eos", flags->generate.ignore_end, "continue after the end-of-text token")->group(group);
  command->add_option("--save", flags->save, "save cache, sampler and text to a file at the end")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option("--restore", flags->restore,
                   "continue from a saved file (same model, method and cache type); -p is appended")
      ->type_name("FILE")
      ->group(group);
  command
      ->add_option("--edit", flags->edits,
                   "before continuing from --restore, replace tokens A to B - 1 of its text; may be repeated")
      ->type_name("A:B=TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command
      ->add_option("--edit-mode", flags->edit_mode,
                   "reuse: the tokens behind keep their keys and values; exact: reads again from the edit on")
      ->type_name("MODE")
      ->group(group)
      ->capture_default_str();
  add_text_model_flags(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_cache_flags(*command, flags->cache, kDefaultMethod);
  add_session_cache_flags(*command, flags->cache, "never evict the prompt: it counts in the budget");
  add_sampling_flags(*command, flags->sampling);
  add_grammar_flags(*command, flags->sampling);
  add_draft_flags(*command, flags->drafts);
  add_json_flag(*command, flags->json);
  CLI::Option* show =
      command
          ->add_option("--show-memory", flags->memory_file,
                       "at the end, show the text with the ink of each token fading as heads forget it: "
                       "on standard error, or as HTML in a file")
          ->type_name("[FILE.html]")
          ->expected(0, 1)
          ->group("Output");
  command->callback([&action, flags, show] {
    flags->show_memory = show->count() > 0;
    take_arguments(*flags);
    action = [flags] { return run(*flags); };
  });
}

}  // namespace palimpsest::cli
