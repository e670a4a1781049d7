// palimpsest chat: a conversation of unlimited length. The model's text goes to standard output, everything else to
// standard error.
#include <fmt/format.h>
#include <unistd.h>

#include <map>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/dialogue.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/line_editor.h"
#include "palimpsest/memory_view.h"
#include "palimpsest/progress.h"
#include "palimpsest/pulling.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/visible_text.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kCommands = R"(/memory         the conversation, its ink fading where the cache forgot it
/method NAME    goes on with another method (h2o, streaming:budget=256), the same budget unless written;
                the conversation is read again with the next message
/budget N       the same method with another budget
/undo           takes the last message and its answer back
/edit [TEXT]    changes the last message (to TEXT) and answers it again
/save FILE      saves the messages          /load FILE   goes on with saved ones
/stats          times and cache             /reset       clears the conversation
/help           this list                   /exit        quits (also: end of input)
Ctrl-C stops an answer; twice at the prompt, it quits.)";

constexpr const char* kChatFooter =
    R"(Every line of standard input is a message. On a terminal, lines can be edited: Up and Down go through earlier
messages, Ctrl-R searches them, Alt-Enter begins a line, and pasted lines are one message. Commands:
  /memory         the conversation, its ink fading where the cache forgot it
  /method NAME    goes on with another method (h2o, streaming:budget=256), the same budget unless written;
                  the conversation is read again with the next message
  /budget N       the same method with another budget
  /undo           takes the last message and its answer back
  /edit [TEXT]    changes the last message (to TEXT) and answers it again
  /save FILE      saves the messages as JSON; /load FILE goes on with saved ones
  /stats          times and cache of the last answer
  /reset          clears the conversation
  /help           these commands
  /exit           quits (also: end of input)
Ctrl-C stops an answer; twice at the prompt, it quits.

Without -m, -hf and $PALIMPSEST_MODEL: SmolLM2, if it was pulled; on a terminal it is offered once. Else the
default model.

Examples:
  palimpsest chat -m smollm2
  palimpsest chat -hf ggml-org/gemma-3-1b-it-GGUF:Q4_K_M
  palimpsest chat -m model.gguf
  palimpsest chat -m model.gguf --system "Answer in one sentence." --temp 0.2
  printf 'Hello\nWhat did I say?\n' | palimpsest chat -m model.gguf --method streaming:budget=1024)";

class Chat {
 public:
  explicit Chat(const ChatFlags& flags) : dialogue_(flags) {}

  int talk() {
    if (lines_.terminal())
      note(fmt::format("{}: {}\n{}{}{}", dialogue_.session().decoder().model().path(), dialogue_.method(), kCommands,
                       lines_.edits() ? "\n" : "", lines_.edits() ? LineEditor::keys() : ""));
    if (const std::string kept = auto_line(dialogue_.session().sequence().plan()); !kept.empty())
      fmt::print(stderr, "palimpsest: {}\n", kept);
    std::string line, begin;
    bool warned = false;
    interrupted();
    while (!output_.closed()) {
      if (lines_.terminal() && !lines_.edits()) output_.write("> ");
      const LineEditor::Result result = lines_.next(line, std::exchange(begin, {}));
      if (result == LineEditor::kEnd) break;
      if (result == LineEditor::kInterruption) {
        output_.write("\n");
        if (warned) return kInterrupted;
        rearm_interrupt();
        warned = true;
        note("(Ctrl-C again or /exit to quit)");
        continue;
      }
      warned = false;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      if (line == "/exit" || line == "/quit") break;
      if (line.front() == '/')
        begin = run_command(line);
      else
        answer(line);
    }
    if (lines_.terminal()) output_.end_line();
    return kOk;
  }

 private:
  // Returns text to edit as the next message.
  std::string run_command(const std::string& line) {
    const auto space = line.find(' ');
    const std::string name = line.substr(0, space);
    const auto from = line.find_first_not_of(' ', space);
    const std::string rest =
        space == std::string::npos || from == std::string::npos ? std::string() : line.substr(from);
    struct Command {
      bool argument;  // it needs one
      std::function<std::string(const std::string&)> run;
    };
    const auto silent = [](auto action) {
      return [action](const std::string& text) {
        action(text);
        return std::string();
      };
    };
    const std::map<std::string, Command> commands = {
        {"/help", {false, silent([&](const std::string&) { note(kCommands); })}},
        {"/stats", {false, silent([&](const std::string&) { stats(); })}},
        {"/memory", {false, silent([&](const std::string&) { show_memory(); })}},
        {"/reset", {false, silent([&](const std::string&) {
                      dialogue_.reset();
                      note("(forgotten)");
                    })}},
        {"/method", {true, silent([&](const std::string& text) {
                       dialogue_.use(text);
                       note("(now " + dialogue_.method() + unread() + ")");
                     })}},
        {"/budget", {true, silent([&](const std::string& text) {
                       dialogue_.limit(text);
                       note("(now " + dialogue_.method() + unread() + ")");
                     })}},
        {"/save", {true, silent([&](const std::string& text) {
                     dialogue_.save(text);
                     note(fmt::format("({} messages saved)", 2 * dialogue_.messages()));
                   })}},
        {"/load", {true, silent([&](const std::string& text) {
                     dialogue_.load(text);
                     note(fmt::format("({} messages loaded)", 2 * dialogue_.messages()));
                   })}},
        {"/undo", {false, silent([&](const std::string&) {
                     const auto words = dialogue_.undo();
                     note(words ? "(taken back: " + visible_text(words->substr(0, 60)) + ")"
                                : "(there is no message to take back)");
                   })}},
        {"/edit", {false, [&](const std::string& text) { return edit(text); }}},
    };
    const auto command = commands.find(name);
    if (command == commands.end()) {
      note(fmt::format("unknown command '{}'; /help lists the commands", visible_text(name)));
      return {};
    }
    if (command->second.argument && rest.empty()) {
      note(fmt::format("{} needs a word after it; /help lists the commands", name));
      return {};
    }
    try {
      return command->second.run(rest);
    } catch (const Error& error) {
      note(visible_text(error.what()));
      return {};
    }
  }

  void stats() {
    const bool answered = dialogue_.last().prompt_tokens > 0;
    const auto unread = static_cast<long long>(dialogue_.unread());
    note(fmt::format("{}{} tokens in total{}; {}",
                     answered ? summary_line(dialogue_.last(), dialogue_.session(), dialogue_.small()) + "\n" : "",
                     thousands(dialogue_.session().position() + unread), this->unread(), dialogue_.method()));
  }

  // Tokens that another method has to read; "": none.
  std::string unread() const {
    if (dialogue_.session().position() > 0 || dialogue_.unread() == 0) return "";
    return fmt::format("; {} tokens are read again with the next message",
                       thousands(static_cast<long long>(dialogue_.unread())));
  }

  void show_memory() {
    const Session& session = dialogue_.session();
    const MemoryMap map =
        session.memory_map({.first = std::max<Position>(0, session.position() - MemoryQuery::kMaxTokens)});
    if (map.tokens.empty()) return note("(nothing was read yet" + unread() + ")");
    note(memory_text(map, dialogue_.vocabulary(), ink_of_terminal()) + "\n" + memory_line(map));
  }

  std::string edit(const std::string& text) {
    if (text.empty() && !lines_.edits()) {
      note("/edit needs the new text after it");
      return {};
    }
    const auto words = dialogue_.undo();
    if (!words) note("(there is no message to edit)");
    if (!words || text.empty()) return words.value_or("");
    answer(text);
    return {};
  }

  void answer(const std::string& words) {
    if (const auto offset = invalid_utf8(words))
      return note(fmt::format("this line is not valid UTF-8 at byte {}: it was not sent", *offset));
    Progress reading("reading", "tokens");
    dialogue_.answer(
        words,
        [&](std::string_view piece) {
          reading.clear();
          output_.write(piece);
          if (output_.closed()) interrupted() = true;
        },
        reading_progress(reading));
    output_.end_line();
    if (dialogue_.last().finish == Finish::kCancelled) rearm_interrupt();
  }

  // To standard error, faint on a terminal.
  static void note(const std::string& text) {
    if (ink_of_terminal() == Ink::kPlain || text.find('\x1B') != std::string::npos)
      fmt::print(stderr, "{}\n", text);
    else
      fmt::print(stderr, "\x1B[2m{}\x1B[0m\n", text);
  }

  Dialogue dialogue_;
  LineEditor lines_;
  StandardOutput output_;
};

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("chat", "Chat with a model");
  command->footer(kChatFooter);
  const auto flags = std::make_shared<ChatFlags>();
  const char* group = "Text";
  command->add_option("--system", flags->system, "system prompt")->type_name("TEXT")->group(group);
  command->add_option("--chat-template", flags->chat_template, kChatTemplateHelp)
      ->type_name("NAME|FILE")
      ->default_str("the model's own")
      ->group(group);
  command
      ->add_flag("--special-tokens-in-messages", flags->special_in_messages,
                 "control tokens in messages (<|im_end|>) have an effect; default: they are plain text")
      ->group(group);
  command->add_option("-n,--n-predict,--tokens", flags->generate.max_tokens, "max tokens per answer; -1: no limit")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
  command->add_option("--stop", flags->generate.stop, "stop string: an answer ends before it; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  add_text_model_flags(*command, flags->model);
  add_model_argument(*command, flags->model);
  add_thread_flags(*command, flags->threads);
  add_cache_flags(*command, flags->cache, kDefaultMethod);
  add_session_cache_flags(
      *command, flags->cache,
      "never evict the system prompt: it counts in the budget (auto pins it if it takes at most a quarter)");
  add_sampling_flags(*command, flags->sampling);
  add_grammar_flags(*command, flags->sampling);
  add_draft_flags(*command, flags->drafts);
  command->callback([&action, flags] {
    action = [flags] {
      if (!names_model(flags->model)) flags->model.path = offer_first_model();
      return Chat(*flags).talk();
    };
  });
}

}  // namespace palimpsest::cli
