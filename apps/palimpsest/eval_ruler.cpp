// palimpsest eval ruler: RULER's generated tasks.
#include "palimpsest/eval/ruler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval_questions.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct RulerFlags {
  QuestionFlags questions;
  std::string task = "niah-single-2";
  std::vector<std::string> haystack;
  long long length = 2048, samples = 20;
  std::uint64_t seed = 1;
};

int run_ruler(const RulerFlags& flags) {
  const auto tasks = ruler_tasks();
  if (std::ranges::find(tasks, flags.task) == tasks.end())
    fail("unknown RULER task '{}': use {}", flags.task, fmt::join(tasks, ", "));
  TextModel model = load_text_model(flags.questions.model);
  const Haystack haystack = read_haystack(flags.haystack);
  Questioner questioner(flags.questions, model, flags.length);
  std::vector<std::vector<TextBlock>> scores(questioner.runs().size());
  RulerPrompt made;
  questioner.ask(
      static_cast<std::size_t>(flags.samples), flags.task,
      [&](std::size_t i, AnswerOptions& options) {
        Draw draw(flags.seed * 1'000'003 + i);
        made = make_ruler(flags.task, flags.length, haystack, questioner.vocabulary(), draw);
        options = {.max_tokens = made.tokens};
        Prompt prompt = questioner.prompt(made.context, {made.question});
        prompt.expected = made.answers;
        return prompt;
      },
      [&](std::size_t run, std::size_t, const std::vector<QuestionAnswer>& answers) {
        scores[run].push_back({ruler_score(answers.front().text, made.answers), 1});
      });

  nlohmann::json runs = nlohmann::json::array();
  if (!flags.questions.json)
    fmt::print("{}: {} prompts of {} tokens, question seen {}; {}; {}\n", flags.task, flags.samples,
               thousands(flags.length), flags.questions.seen, haystack.name(), model_name(*model.model));
  for (std::size_t r = 0; r < scores.size(); ++r) {
    const auto& run = questioner.runs()[r];
    const Interval mean = bootstrap(scores[r]);
    nlohmann::json out = questioner.json_of(run);
    out.update({{"score", finite(mean.mean)}, {"score_low", finite(mean.low)}, {"score_high", finite(mean.high)}});
    runs.push_back(out);
    if (!flags.questions.json)
      fmt::print("{}: {:.1f}%{}; {}; {:.3f} ms per token\n", run.cache_use.name, 100 * mean.mean,
                 std::isfinite(mean.low) ? fmt::format(" [{:.1f}, {:.1f}]", 100 * mean.low, 100 * mean.high) : "",
                 cache_use_text(run.cache_use), run.tpot_ms());
    if (run.cache_use.evicted == 0 && mean.mean == 0)
      fmt::print(stderr, "palimpsest: {}: no answer was correct without any eviction: this model cannot solve '{}'\n",
                 run.cache_use.name, flags.task);
    warn_of_nothing_evicted(run.cache_use);
  }
  if (flags.questions.json)
    fmt::print("{}\n", nlohmann::json{{"task", "ruler"},
                                      {"kind", flags.task},
                                      {"model", model_name(*model.model)},
                                      {"haystack", haystack.name()},
                                      {"length", flags.length},
                                      {"samples", flags.samples},
                                      {"seed", flags.seed},
                                      {"runs", runs}}
                           .dump(2));
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_ruler(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<RulerFlags>();
  CLI::App* command = eval.add_subcommand("ruler", "RULER's generated tasks");
  add_question_flags(*command, flags->questions);
  command->add_option("--task", flags->task, fmt::format("{}", fmt::join(ruler_tasks(), ", ")))
      ->type_name("TASK")
      ->capture_default_str();
  command->add_option("--haystack", flags->haystack, "haystack: text file or folder of .txt files; may be repeated")
      ->type_name("FILE")
      ->default_str("included stories")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--length", flags->length, "tokens of prompt and answer")
      ->check(CLI::Range(16, 1 << 24))
      ->capture_default_str();
  command->add_option("--samples", flags->samples, "prompts")->check(CLI::Range(1, 100000))->capture_default_str();
  command->add_option("--seed", flags->seed, "random seed of the prompts")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_ruler(*flags); }; });
}

}  // namespace palimpsest::cli
