#include "palimpsest/eval_questions.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval/plain_text.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {

void add_question_flags(CLI::App& command, QuestionFlags& flags) {
  add_text_model_flags(command, flags.model);
  add_method_list(command, flags.list, {"full"});
  add_thread_flags(command, flags.threads);
  command
      .add_option("--question-seen", flags.seen,
                  "before: the question is part of the compressed prompt; after: the cache is reduced to its budget "
                  "before the questions")
      ->check(CLI::IsMember({"before", "after"}))
      ->type_name("WHEN")
      ->capture_default_str();
  command.add_flag("--chat", flags.chat, "apply the model's chat template");
  command.add_option("--chat-template", flags.chat_template, "chat template: a name or a file (with --chat)")
      ->type_name("TEMPLATE")
      ->needs("--chat");
  command
      .add_option("--log-samples", flags.samples,
                  "write each prompt's tokens, right answers and answers to a new file, as JSON lines")
      ->type_name("FILE");
  add_json_flag(command, flags.json);
}

namespace {

// A line for each prompt and method.
class SampleLog {
 public:
  explicit SampleLog(const std::string& path) : path_(path) {
    if (path.empty()) return;
    if (std::filesystem::exists(path)) fail("--log-samples {}: the file exists: name a new one", path);
    out_.open(path);
    check();
  }
  void add(std::size_t index, const std::string& method, const Prompt& prompt,
           std::span<const QuestionAnswer> answers) {
    if (path_.empty()) return;
    nlohmann::json line{{"prompt", index},
                        {"method", method},
                        {"context", prompt.context},
                        {"starts", prompt.starts},
                        {"questions", prompt.questions},
                        {"expected", prompt.expected}};
    for (const QuestionAnswer& answer : answers) {
      line["answers"].push_back(answer.text);
      line["tokens"].push_back(answer.tokens);
    }
    out_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
    check();
  }

 private:
  void check() const {
    if (!out_) fail("--log-samples {}: cannot be written: name a file in a folder that exists", path_);
  }

  std::string path_;
  std::ofstream out_;
};

}  // namespace

Haystack read_haystack(const std::vector<std::string>& named) {
  if (named.empty()) return {eval_data("haystack.txt"), "the included haystack"};
  std::string all;
  const std::vector<std::string> files = text_files(named);
  for (const std::string& file : files) all += plain_text(read_text(file, "the haystack")).text + "\n\n";
  return {all, files.size() == 1 ? files.front() : fmt::format("{} haystack files", files.size())};
}

Questioner::Questioner(const QuestionFlags& flags, TextModel model, long long longest)
    : flags_(flags),
      model_(std::move(model)),
      longest_(longest),
      seen_(flags.seen == "after" ? QuestionSeen::kAfter : QuestionSeen::kBefore) {
  const StepThreads threads = threads_of(flags.threads, model_.model->hyper());
  decoder_ = std::make_shared<Decoder>(model_.model, threads);
  for (const NamedMethod& method : method_list(flags.list, model_, threads, longest)) {
    runs_.push_back({.method = method, .cache_use = CacheUse(method.name, method.options)});
    runs_.back().cache_use.set_files(*decoder_, method.options);
  }
  if (flags.chat) template_ = ChatTemplate::load(model_.vocabulary, flags.chat_template);
}

void Questioner::ask(std::size_t count, const std::string& label, const Make& make, const Got& got) {
  std::vector<std::unique_ptr<Asker>> askers;
  for (const Run& run : runs_)
    askers.push_back(std::make_unique<Asker>(decoder_, model_.vocabulary, run.method.options));
  SampleLog log(flags_.samples);
  Progress bar(label, "prompts");
  for (std::size_t i = 0; i < count && !interrupted(); ++i) {
    AnswerOptions options;
    const Prompt prompt = make(i, options);
    for (std::size_t r = 0; r < runs_.size() && !interrupted(); ++r) {
      const std::vector<QuestionAnswer> answers = askers[r]->ask(prompt, seen_, options);
      Run& run = runs_[r];
      long long evicted = 0;
      for (const QuestionAnswer& each : answers) {
        run.prompt_ms += each.prompt_ms;
        run.answer_ms += each.ms;
        run.prompt_tokens += each.prompt_tokens;
        run.answer_tokens += static_cast<long long>(each.tokens.size());
        run.steps += std::max(0LL, static_cast<long long>(each.tokens.size()) - 1);
        evicted += each.evicted;
      }
      run.cache_use.add(askers[r]->session().cache(), evicted);
      log.add(i, run.cache_use.name, prompt, answers);
      got(r, i, answers);
    }
    bar.update(static_cast<long long>(i + 1), static_cast<long long>(count));
  }
  bar.clear();
  if (const int trained = model().hyper().trained_context; trained > 0 && longest_ > trained)
    fmt::print(stderr, "palimpsest: {} tokens exceed the model's trained context of {}\n", longest_, trained);
}

Prompt Questioner::prompt(const std::string& context, const std::vector<std::string>& questions,
                          const std::vector<std::string>& starts, const std::string& system) const {
  return question_prompt(*model_.vocabulary, template_.get(), context, questions, starts, system);
}

std::string Questioner::between_messages(const std::string& reply) const {
  if (!template_) fail("this is a chat: add --chat, with a model that has a chat template");
  const std::string first = "(first message)", second = "(second message)";
  const std::string text = template_->text({{"user", first}, {"assistant", reply}, {"user", second}});
  const auto from = text.find(first), to = text.find(second);
  if (from == std::string::npos || to == std::string::npos || to < from)
    fail("the chat template leaves out the user's messages");
  return text.substr(from + first.size(), to - from - first.size());
}

nlohmann::json Questioner::json_of(const Run& run) const {
  nlohmann::json out = as_json(run.cache_use);
  out.update({{"question_seen", flags_.seen},
              {"chat", flags_.chat},
              {"prompt_tokens", run.prompt_tokens},
              {"prompt_ms", run.prompt_ms},
              {"answer_tokens", run.answer_tokens},
              {"tpot_ms", run.tpot_ms()}});
  return out;
}

}  // namespace palimpsest::cli
