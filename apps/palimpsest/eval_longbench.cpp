// palimpsest eval longbench: the official records, prompts and metrics.
#include "palimpsest/eval/longbench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval/metrics.h"
#include "palimpsest/eval_questions.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct LongBenchFlags {
  QuestionFlags questions;
  std::string file, dataset, prompts, lengths, predictions, score;
  long long limit = 0, context = 0;
};

// Path of a LongBench configuration file: the given one, or where LongBench's repository has it relative to the
// records.
std::string config_file(const std::string& named, const std::string& records, const std::string& name,
                        const char* flag) {
  if (!named.empty()) return named;
  const auto folder = std::filesystem::absolute(records).parent_path();
  for (const auto& path : {folder / name, folder / ("longbench_" + name), folder / "config" / name,
                           folder.parent_path() / "config" / name})
    if (std::filesystem::is_regular_file(path)) return path.string();
  fail("no {} in the folder of '{}': name LongBench's file with {}", name, records, flag);
}

const LongBenchTask& task_of(const std::string& dataset) {
  const std::string plain = dataset.ends_with("_e") ? dataset.substr(0, dataset.size() - 2) : dataset;
  const LongBenchTask* task = longbench_task(plain);
  if (task == nullptr) fail("no metric for the dataset '{}': there is one for {}", dataset, longbench_tasks());
  return *task;
}

Interval interval_of(std::span<const double> scores) {
  std::vector<TextBlock> blocks;
  for (const double score : scores) blocks.push_back({score, 1});
  return bootstrap(blocks);
}

nlohmann::json as_json(std::span<const double> scores) {
  const Interval mean = interval_of(scores);
  return {{"score", finite(mean.mean)},
          {"score_low", finite(mean.low)},
          {"score_high", finite(mean.high)},
          {"scores", scores}};
}

int score_predictions(const LongBenchFlags& flags) {
  if (flags.dataset.empty()) fail("--score needs --dataset: predictions do not name their metric");
  const LongBenchTask& task = task_of(flags.dataset);
  std::vector<double> scores;
  for (const auto& each : read_predictions(read_text(flags.score, "the predictions"), flags.score))
    scores.push_back(longbench_score(task, each.prediction, each.answers, each.classes));
  if (flags.questions.json) {
    nlohmann::json out = as_json(scores);
    out.update({{"task", "longbench-score"}, {"dataset", flags.dataset}, {"records", scores.size()}});
    fmt::print("{}\n", out.dump(2));
  } else {
    fmt::print("{}: {:.2f} over {} predictions\n", flags.dataset, 100 * interval_of(scores).mean, scores.size());
  }
  return kOk;
}

int run_longbench(const LongBenchFlags& flags) {
  if (!flags.score.empty()) return score_predictions(flags);
  if (flags.file.empty()) fail("name LongBench's records with -f, or predictions with --score");
  auto records = read_longbench(read_text(flags.file, "the records"), flags.file, flags.dataset);
  if (flags.limit > 0 && records.size() > static_cast<std::size_t>(flags.limit))
    records.resize(static_cast<std::size_t>(flags.limit));
  const std::string dataset = records.front().dataset;
  for (const auto& each : records)
    if (each.dataset != dataset)
      fail("{}: records of '{}' and of '{}': one dataset per file", flags.file, dataset, each.dataset);
  const LongBenchTask& task = task_of(dataset);
  const std::string prompts_file = config_file(flags.prompts, flags.file, "dataset2prompt.json", "--prompts");
  const std::string lengths_file = config_file(flags.lengths, flags.file, "dataset2maxlen.json", "--output-lengths");
  const auto prompts = read_prompts(read_text(prompts_file, "the prompts"), prompts_file);
  const auto lengths = read_lengths(read_text(lengths_file, "the output lengths"), lengths_file);
  if (!prompts.contains(dataset)) fail("{}: no prompt for '{}'", prompts_file, dataset);
  if (!lengths.contains(dataset)) fail("{}: no output length for '{}'", lengths_file, dataset);
  const int tokens = lengths.at(dataset);
  if (!flags.predictions.empty() && flags.questions.list.methods.size() != 1)
    fail("--predictions writes one method's answers: give one --method");

  TextModel model = load_text_model(flags.questions.model);
  const long long trained = model.model->hyper().trained_context;
  const long long max = flags.context > 0 ? flags.context : trained > 0 ? trained : 1 << 20;
  if (max - tokens < 16)
    fail(
        "a context of {} tokens has no room for a prompt and {} tokens of answer: '{}' is not possible with this model",
        max, tokens, dataset);
  longbench_score(task, "", records.front().answers,
                  records.front().classes);  // throws early for a task that cannot be scored
  Questioner questioner(flags.questions, model, max);
  std::vector<std::vector<double>> scores(questioner.runs().size());
  std::ofstream predictions;
  if (!flags.predictions.empty()) {
    predictions.open(flags.predictions);
    if (!predictions) fail("{}: cannot be written", flags.predictions);
  }
  long long truncated = 0;
  questioner.ask(
      records.size(), dataset,
      [&](std::size_t i, AnswerOptions& options) {
        const LongBenchPrompt made =
            longbench_prompt(prompts.at(dataset), records[i], max - tokens, questioner.vocabulary());
        truncated += made.truncated ? 1 : 0;
        options = {.max_tokens = tokens, .stop_at_newline = dataset == "samsum"};
        return questioner.prompt(made.context, {made.question});
      },
      [&](std::size_t run, std::size_t i, const std::vector<QuestionAnswer>& answers) {
        const std::string& said = answers.front().text;
        scores[run].push_back(longbench_score(task, said, records[i].answers, records[i].classes));
        if (!flags.predictions.empty())
          predictions << nlohmann::json{{"pred", said},
                                        {"answers", records[i].answers},
                                        {"all_classes", records[i].classes},
                                        {"length", records[i].length}}
                             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)
                      << "\n";
      });

  if (flags.questions.json) {
    nlohmann::json runs = nlohmann::json::array();
    for (std::size_t r = 0; r < scores.size(); ++r) {
      nlohmann::json run = questioner.json_of(questioner.runs()[r]);
      run.update(as_json(scores[r]));
      runs.push_back(run);
    }
    fmt::print("{}\n", nlohmann::json{{"task", "longbench"},
                                      {"dataset", dataset},
                                      {"model", model_name(*model.model)},
                                      {"records", records.size()},
                                      {"truncated", truncated},
                                      {"context", max},
                                      {"runs", runs}}
                           .dump(2));
  } else {
    fmt::print("{}: {} records, {} truncated in the middle to {} tokens; question seen {}{}; {}\n", dataset,
               records.size(), truncated, thousands(max - tokens), flags.questions.seen,
               flags.questions.chat ? ", as a chat" : "", model_name(*model.model));
    for (std::size_t r = 0; r < scores.size(); ++r) {
      const auto& run = questioner.runs()[r];
      const Interval mean = interval_of(scores[r]);
      fmt::print("{}: {:.2f}{}; {}; {:.3f} ms per token\n", run.cache_use.name, 100 * mean.mean,
                 std::isfinite(mean.low) ? fmt::format(" [{:.2f}, {:.2f}]", 100 * mean.low, 100 * mean.high) : "",
                 cache_use_text(run.cache_use), run.tpot_ms());
    }
  }
  for (const auto& run : questioner.runs()) warn_of_nothing_evicted(run.cache_use);
  if (flags.questions.chat && !task.chat)
    fmt::print(stderr, "palimpsest: LongBench uses no chat template for '{}'\n", dataset);
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_longbench(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<LongBenchFlags>();
  CLI::App* command = eval.add_subcommand("longbench", "LongBench, with its prompts and metrics");
  add_question_flags(*command, flags->questions);
  command->add_option("-f,--file", flags->file, "LongBench's records (JSON lines)")->type_name("FILE");
  command->add_option("--dataset", flags->dataset, "name of the dataset")
      ->type_name("NAME")
      ->default_str("as in the records");
  command->add_option("--prompts", flags->prompts, "LongBench's dataset2prompt.json")
      ->type_name("FILE")
      ->default_str("the one in the records' folder");
  command->add_option("--output-lengths", flags->lengths, "LongBench's dataset2maxlen.json")
      ->type_name("FILE")
      ->default_str("the one in the records' folder");
  command
      ->add_option("--context", flags->context,
                   "max tokens of prompt and answer; longer prompts are truncated in the middle")
      ->type_name("TOKENS")
      ->default_str("the trained context")
      ->check(CLI::PositiveNumber);
  command->add_option("--limit", flags->limit, "max number of records; 0: all")->check(CLI::NonNegativeNumber);
  command->add_option("--predictions", flags->predictions, "write predictions for LongBench's eval.py to this file")
      ->type_name("FILE");
  command
      ->add_option("--score", flags->score,
                   "score a file of predictions (pred, answers, all_classes) without running a model")
      ->type_name("FILE");
  command->callback([flags, &action] { action = [flags] { return run_longbench(*flags); }; });
}

}  // namespace palimpsest::cli
