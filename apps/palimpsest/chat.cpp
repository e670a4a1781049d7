// palimpsest chat: a conversation of unlimited length. The model's text goes to standard output, everything else to
// standard error.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "palimpsest/commands.h"
#include "palimpsest/core/error.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/text/conversation.h"
#include "palimpsest/text/system_prompt.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/writer.h"

namespace palimpsest::cli {
namespace {

constexpr const char* kCommands = R"(/stats   times and cache of the last answer    /reset   clear the conversation
/help    this list                             /exit    quit (also: end of input)
Ctrl-C stops an answer; twice at the prompt, it quits.)";

constexpr const char* kChatFooter = R"(Every line of standard input is a message. Commands:
  /stats   times and cache of the last answer
  /reset   clear the conversation
  /help    these commands
  /exit    quit (also: end of input)
Ctrl-C stops an answer; twice at the prompt, it quits.

Examples:
  palimpsest chat -m model.gguf
  palimpsest chat -m model.gguf --system "Answer in one sentence." --temp 0.2
  printf 'Hello\nWhat did I say?\n' | palimpsest chat -m model.gguf --method streaming:budget=1024)";

struct ChatFlags {
  ModelFlags model;
  CacheFlags cache;
  SamplingFlags sampling;
  DraftFlags drafts;
  std::optional<long long> threads;
  std::string system, chat_template;
  GenerateOptions generate{.max_tokens = 1024, .stop = {}, .ignore_end = false};
};

// Reads lines of standard input; a signal interrupts the read.
class Lines {
 public:
  enum Result { kLine, kEnd, kInterruption };
  Result next(std::string& line) {
    while (true) {
      if (const auto at = buffer_.find('\n'); at != std::string::npos) {
        line = buffer_.substr(0, at);
        buffer_.erase(0, at + 1);
        return kLine;
      }
      // Polls with a timeout: without it, a signal just before the system call would be seen only after the next line.
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      while (!interrupted() && poll(&input, 1, 200) == 0) continue;
      if (interrupted()) return kInterruption;
      char bytes[4096];
      const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("standard input cannot be read (error {})", errno);
      if (n == 0 && buffer_.empty()) return kEnd;
      if (n == 0) bytes[0] = '\n';
      buffer_.append(bytes, n == 0 ? 1 : static_cast<std::size_t>(n));
    }
  }

 private:
  std::string buffer_;
};

class Chat {
 public:
  explicit Chat(const ChatFlags& flags)
      : flags_(flags),
        sampling_(sampler_options(flags.sampling)),
        loaded_(load_text_model(flags.model)),
        threads_(threads_of(flags.threads, loaded_.model->hyper())),
        template_(ChatTemplate::load(loaded_.vocabulary, flags.chat_template)),
        conversation_(template_, flags.system),
        session_(std::make_shared<Decoder>(loaded_.model, threads_), options_of(flags)),
        speculation_(speculation_of(flags.drafts, *loaded_.vocabulary, threads_)) {
    generate_.drafts = speculation_ ? &*speculation_ : nullptr;
    sampling_.seed = Sampler(sampling_, loaded_.vocabulary.get(), loaded_.vocabulary->size()).seed();
  }

  int talk() {
    const bool terminal = isatty(STDIN_FILENO) == 1;
    if (terminal) fmt::print(stderr, "{}: {}\n{}\n", loaded_.model->path(), spell_short(session_.method()), kCommands);
    if (const std::string line = auto_line(session_.sequence().plan()); !line.empty())
      fmt::print(stderr, "palimpsest: {}\n", line);
    Lines lines;
    std::string line;
    bool warned = false;
    interrupted();
    while (!output_.closed()) {
      if (terminal) output_.write("> ");
      const Lines::Result result = lines.next(line);
      if (result == Lines::kEnd) break;
      if (result == Lines::kInterruption) {
        output_.write("\n");
        if (warned) return kInterrupted;
        rearm_interrupt();
        warned = true;
        fmt::print(stderr, "(Ctrl-C again or /exit to quit)\n");
        continue;
      }
      warned = false;
      if (!line.empty() && line.back() == '\r') line.pop_back();
      if (line.empty()) continue;
      if (line == "/exit" || line == "/quit") break;
      if (line.front() == '/')
        run_command(line);
      else
        answer(line);
    }
    if (terminal) output_.end_line();
    return kOk;
  }

 private:
  std::vector<PositionRange> system_prompt() const {
    if (flags_.system.empty()) return {};
    const ChatInput chat{.messages = {{"system", flags_.system}, {"user", "x"}}};
    const auto prompt = loaded_.vocabulary->tokenize(template_->apply(chat).text, true, true);
    const std::size_t tokens = system_prompt_tokens(*template_, *loaded_.vocabulary, chat, prompt);
    return {{0, static_cast<Position>(tokens)}};
  }

  // Method auto pins a system prompt that is short.
  bool pins_itself(const CacheFlags& cache, const std::vector<PositionRange>& system) const {
    if (system.empty()) return false;
    const MethodPlan plan = plan_of(session_options(cache, kDefaultMethod), loaded_.model->hyper());
    return pins_system_prompt(plan.method(), static_cast<std::size_t>(system.front().last));
  }

  SessionOptions options_of(const ChatFlags& flags) const {
    CacheFlags cache = flags.cache;
    const std::vector<PositionRange> system = system_prompt();
    if (cache.pin_prompt || pins_itself(cache, system)) cache.pins = system;
    SessionOptions options =
        session_options(cache, kDefaultMethod, loaded_.model->hyper(), loaded_.vocabulary.get(), 0);
    options.draft_max = draft_max_of(flags.drafts);
    return options;
  }

  void run_command(const std::string& command) {
    if (command == "/help") {
      fmt::print(stderr, "{}\n", kCommands);
    } else if (command == "/stats") {
      fmt::print(stderr, "{}\n{} tokens in total, {}\n", summary_line(last_, session_), thousands(session_.position()),
                 spell_short(session_.method()));
    } else if (command == "/reset") {
      conversation_.reset();
      session_.clear();
      unread_.clear();
      fmt::print(stderr, "(forgotten)\n");
    } else {
      fmt::print(stderr, "unknown command '{}'; commands: /stats, /reset, /help, /exit\n", command);
    }
  }

  void answer(const std::string& words) {
    if (const auto offset = invalid_utf8(words)) {
      fmt::print(stderr, "this line is not valid UTF-8 at byte {}: it was not sent\n", *offset);
      return;
    }
    const Conversation::Turn turn = conversation_.user(words);
    if (turn.restart) {
      session_.clear();
      unread_.clear();
    }
    const auto tokens = loaded_.vocabulary->tokenize(turn.text, turn.restart, true);
    unread_.insert(unread_.end(), tokens.begin(), tokens.end());

    SamplerOptions options = sampling_;  // a new sampler for each answer, so that a grammar restarts
    options.seed += turns_++;
    Sampler sampler(options, loaded_.vocabulary.get(), loaded_.vocabulary->size());
    std::string reply;
    Progress reading("reading", "tokens");
    last_ = generate(
        session_, sampler, *loaded_.vocabulary, unread_, generate_,
        [&](std::string_view piece) {
          reading.clear();
          reply += piece;
          output_.write(piece);
          if (output_.closed()) interrupted() = true;
        },
        interrupted(),
        [&](long long done, long long total) {
          reading.update(done, total);
          return true;
        });
    output_.end_line();
    if (last_.stop_reason == "cancelled") rearm_interrupt();
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(last_.prompt_tokens));
    if (last_.unread >= 0) unread_.push_back(last_.unread);
    conversation_.assistant(reply);
  }

  const ChatFlags& flags_;
  SamplerOptions sampling_;
  TextModel loaded_;
  int threads_;
  std::shared_ptr<const ChatTemplate> template_;
  Conversation conversation_;
  Session session_;
  std::optional<Speculation> speculation_;
  GenerateOptions generate_ = flags_.generate;
  StandardOutput output_;
  Generation last_;
  std::vector<TokenId> unread_;  // generated, but not yet read by the model
  std::uint32_t turns_ = 0;
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
  add_threads_flag(*command, flags->threads);
  add_cache_flags(*command, flags->cache, kDefaultMethod);
  add_session_cache_flags(*command, flags->cache,
                          "never evict the system prompt: it counts in the budget (auto: if it is a quarter at most)");
  add_sampling_flags(*command, flags->sampling);
  add_draft_flags(*command, flags->drafts);
  command->callback([&action, flags] { action = [flags] { return Chat(*flags).talk(); }; });
}

}  // namespace palimpsest::cli
