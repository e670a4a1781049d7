// palimpsest eval checked: tasks whose answers a program checks.
#include "palimpsest/eval/checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval/likelihood.h"
#include "palimpsest/eval_questions.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr int kJudgeChunk = 64;  // logits of all its tokens are in memory

struct CheckedFlags {
  QuestionFlags questions;
  std::string task, babi, answers;
  std::vector<std::string> haystack;
  long long length = 1024, samples = 20, asked = 3;
  std::uint64_t seed = 1;
};

// Marks of answers; the answers of a context are a block.
struct Marks {
  std::vector<TextBlock> contexts;
  bool shares = false;  // some are neither 0 nor 1

  void add(double mark) {
    contexts.back().sum += mark;
    contexts.back().weight += 1;
    shares = shares || (mark != 0 && mark != 1);
  }
  double sum() const {
    double all = 0;
    for (const TextBlock& each : contexts) all += each.sum;
    return all;
  }
  long long count() const {
    double all = 0;
    for (const TextBlock& each : contexts) all += each.weight;
    return std::llround(all);
  }
  // Of right answers: Wilson's; of shares: a bootstrap over contexts.
  Interval interval() const { return shares ? bootstrap(contexts) : wilson(std::llround(sum()), count()); }
};

struct CheckedRun {
  Marks right, form;
  std::vector<TextBlock> losses;  // of judged answers, under the full cache
};

// The losses of an answer's tokens after the question, under the full cache.
TextBlock judged_loss(Session& full, const Prompt& prompt, std::size_t question, const std::vector<TokenId>& answer) {
  std::vector<TokenId> text(prompt.context);
  text.insert(text.end(), prompt.questions[question].begin(), prompt.questions[question].end());
  const std::size_t first = text.size();
  text.insert(text.end(), answer.begin(), answer.end());
  TextBlock out;
  if (answer.empty()) return out;
  full.clear();
  full.read(std::span(text).first(text.size() - 1), [&](long long index, std::span<const float> logits) {
    const auto next = static_cast<std::size_t>(index) + 1;
    if (next < first) return;
    out.sum += negative_log_likelihood(logits, text[next]);
    out.weight += 1;
  });
  return out;
}

nlohmann::json interval_json(const Marks& marks, const std::string& name) {
  const Interval interval = marks.interval();
  return {
      {name, finite(interval.mean)}, {name + "_low", finite(interval.low)}, {name + "_high", finite(interval.high)}};
}

nlohmann::json checked_json(const Questioner& questioner, const Questioner::Run& run, const CheckedRun& got) {
  nlohmann::json out = questioner.json_of(run);
  out.update(interval_json(got.right, "score"));
  out["questions"] = got.right.count();
  if (!got.form.contexts.empty()) out.update(interval_json(got.form, "form"));
  if (!got.losses.empty()) {
    const Interval loss = bootstrap(got.losses);
    out.update({{"nll", finite(loss.mean)},
                {"nll_low", finite(loss.low)},
                {"nll_high", finite(loss.high)},
                {"perplexity", finite(std::exp(loss.mean))}});
  }
  return out;
}

std::string percent_text(const Marks& marks) {
  const Interval share = marks.interval();
  return fmt::format(
      "{:.1f}%{}", 100 * share.mean,
      std::isfinite(share.low) ? fmt::format(" [{:.1f}, {:.1f}]", 100 * share.low, 100 * share.high) : "");
}

void print_checked(const Questioner::Run& run, const CheckedRun& got) {
  std::string more;
  if (!got.form.contexts.empty()) more += fmt::format("; form {}", percent_text(got.form));
  if (!got.losses.empty())
    more +=
        fmt::format("; perplexity of the answers under the full cache {:.2f}", std::exp(bootstrap(got.losses).mean));
  fmt::print("{}: {} of {}{}; {}; {:.3f} ms per token\n", run.cache_use.name, percent_text(got.right),
             thousands(got.right.count()), more, cache_use_text(run.cache_use), run.tpot_ms());
}

int run_checked(const CheckedFlags& flags) {
  if (flags.task.empty()) fail("name a task with --task (palimpsest eval checked --help lists them)");
  const CheckedTask task = checked_task(flags.task);
  if (task.babi && flags.babi.empty()) fail("task 'babi' needs a bAbI file: name one with --babi");
  if (!task.babi && !flags.babi.empty()) fail("--babi is of task 'babi' only");
  std::vector<BabiQuestion> babi;
  if (task.babi) babi = parse_babi(read_text(flags.babi, "the bAbI file"), flags.babi);
  TextModel model = load_text_model(flags.questions.model);
  const Haystack haystack = read_haystack(flags.haystack);
  Questioner questioner(flags.questions, model, flags.length);
  const CheckedSpec spec{.length = flags.length,
                         .questions = static_cast<int>(flags.asked),
                         .between = [&](const std::string& reply) { return questioner.between_messages(reply); },
                         .babi = babi};
  SessionOptions full;
  full.chunk = kJudgeChunk;
  std::unique_ptr<Session> judge;
  std::vector<CheckedRun> got(questioner.runs().size());
  CheckedPrompt made;
  Prompt prompt;
  std::ofstream written;
  if (!flags.answers.empty()) {
    written.open(flags.answers);
    if (!written) fail("{}: cannot be written", flags.answers);
  }
  questioner.ask(
      static_cast<std::size_t>(flags.samples), task.name,
      [&](std::size_t i, AnswerOptions& options) {
        Draw draw(flags.seed * 1'000'003 + i);  // one seed per prompt: more samples do not change the others
        made = make_checked(task, spec, haystack, questioner.vocabulary(), draw);
        options = made.options;
        return prompt = questioner.prompt(made.context, made.questions, made.starts, made.system);
      },
      [&](std::size_t run, std::size_t i, const std::vector<QuestionAnswer>& answers) {
        CheckedRun& into = got[run];
        into.right.contexts.emplace_back();
        if (!made.forms.empty()) into.form.contexts.emplace_back();
        for (std::size_t q = 0; q < answers.size(); ++q) {
          const double mark = made.checks[q](answers[q].text);
          into.right.add(mark);
          if (written.is_open())
            written << nlohmann::json{{"method", questioner.runs()[run].cache_use.name},
                                      {"context", i},
                                      {"system", made.system},
                                      {"question", made.questions[q]},
                                      {"start", made.starts[q]},
                                      {"answer", answers[q].text},
                                      {"score", mark}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                    << "\n";
          if (!made.forms.empty()) into.form.add(made.forms[q](answers[q].text));
          if (!made.judged) continue;
          if (!judge) judge = std::make_unique<Session>(questioner.decoder(), full);
          into.losses.push_back(judged_loss(*judge, prompt, q, answers[q].tokens));
        }
      });

  if (flags.questions.json) {
    nlohmann::json runs = nlohmann::json::array();
    for (std::size_t r = 0; r < got.size(); ++r) runs.push_back(checked_json(questioner, questioner.runs()[r], got[r]));
    nlohmann::json out = {{"task", "checked"},
                          {"kind", task.name},
                          {"model", model_name(*model.model)},
                          {"haystack", haystack.name()},
                          {"length", flags.length},
                          {"samples", flags.samples},
                          {"seed", flags.seed},
                          {"runs", runs}};
    if (task.babi) out["babi"] = flags.babi;
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}: {}; {} contexts of {} tokens, question seen {}; {}; {}\n", task.name, task.about, flags.samples,
               thousands(flags.length), flags.questions.seen, haystack.name(), model_name(*model.model));
    for (std::size_t r = 0; r < got.size(); ++r) print_checked(questioner.runs()[r], got[r]);
  }
  for (const auto& run : questioner.runs()) warn_of_nothing_evicted(run.cache_use);
  return interrupted() ? kInterrupted : kOk;
}

std::string tasks_help() {
  std::string out = "task:";
  for (const CheckedTask& task : checked_tasks()) out += fmt::format(" {}: {};", task.name, task.about);
  return out.substr(0, out.size() - 1);
}

}  // namespace

void add_eval_checked(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<CheckedFlags>();
  CLI::App* command = eval.add_subcommand("checked", "Instructions, secrets, code, tool calls, long answers, bAbI");
  add_question_flags(*command, flags->questions);
  command->add_option("--task", flags->task, tasks_help())->type_name("TASK");
  command->add_option("--babi", flags->babi, "file of a bAbI task, as qa1_single-supporting-fact_test.txt")
      ->type_name("FILE");
  command
      ->add_option("--haystack", flags->haystack,
                   "text between the facts: file or folder of .txt files; may be repeated")
      ->type_name("FILE")
      ->default_str("included stories")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--length", flags->length, "tokens of prompt and answer")
      ->check(CLI::Range(16, 1 << 24))
      ->capture_default_str();
  command->add_option("--samples", flags->samples, "contexts")->check(CLI::Range(1, 100000))->capture_default_str();
  command->add_option("--questions,--asked", flags->asked, "questions per context, if the task has as many")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--answers", flags->answers, "write the answers and their marks to this file (JSON lines)")
      ->type_name("FILE");
  command->add_option("--seed", flags->seed, "random seed of the contexts")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_checked(*flags); }; });
}

}  // namespace palimpsest::cli
