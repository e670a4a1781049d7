// palimpsest eval likelihood: log likelihoods of continuations, as lm-evaluation-harness computes them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/likelihood.h"
#include "palimpsest/eval_commands.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/method_list.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct LikelihoodFlags {
  ModelFlags model;
  MethodListFlags list;
  ThreadFlags threads;
  std::string file;
  bool bos = false, json = false;
};

struct ChoiceQuestion {
  std::string prompt;
  std::vector<std::string> choices;
  int answer = -1;  // -1: none given
};

struct Likelihood {
  double logprob = 0;  // of the continuation, in nats
  int tokens = 0;
  bool greedy = true;  // each of its tokens is the likeliest
};

std::vector<ChoiceQuestion> read_questions(const std::string& file) {
  const std::string text = read_text(file, "the file of questions");
  std::vector<ChoiceQuestion> out;
  int number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \r") == std::string::npos) continue;
    try {
      const auto json = nlohmann::json::parse(line);
      ChoiceQuestion one{.prompt = json.at("prompt"), .choices = json.at("choices")};
      one.answer = json.value("answer", -1);
      if (one.prompt.empty() || one.choices.empty() || one.answer < -1 || one.answer >= std::ssize(one.choices))
        fail("the prompt or the choices are empty, or 'answer' is not one of the choices' numbers");
      out.push_back(std::move(one));
    } catch (const std::exception& error) {
      fail("{}, line {}: {}; give a JSON object: {{\"prompt\": TEXT, \"choices\": [TEXT, ...], \"answer\": NUMBER}}",
           file, number, error.what());
    }
  }
  if (out.empty()) fail("{}: has no questions: give one JSON object a line", file);
  return out;
}

// Prompt and continuation are split into tokens together; the prompt's tokens alone say where the continuation begins.
// White space at the prompt's end belongs to the continuation.
std::pair<std::vector<TokenId>, std::size_t> tokens_of_choice(std::string prompt, std::string choice, bool bos,
                                                              const Vocabulary& vocabulary) {
  const std::size_t end = prompt.find_last_not_of(" \n\t") + 1;
  choice = prompt.substr(end) + choice;
  prompt.resize(end);
  auto all = vocabulary.tokenize(prompt + choice, bos, true);
  const std::size_t from = vocabulary.tokenize(prompt, bos, true).size();
  if (from == 0 || from >= all.size()) fail("the prompt '{}' or a choice has no token", prompt);
  return {std::move(all), from};
}

Likelihood likelihood_of(Session& session, std::span<const TokenId> tokens, std::size_t from) {
  Likelihood out{.tokens = static_cast<int>(tokens.size() - from)};
  session.clear();
  session.read(tokens, [&](long long index, std::span<const float> logits) {
    const std::size_t next = static_cast<std::size_t>(index) + 1;
    if (next < from || next >= tokens.size()) return;
    out.logprob -= negative_log_likelihood(logits, tokens[next]);
    out.greedy = out.greedy && top_two(logits).best == tokens[next];
  });
  return out;
}

int run_likelihood(const LikelihoodFlags& flags) {
  const auto model = load_model(flags.model);
  const auto vocabulary = Vocabulary::load(model->path(), model->options().overrides);
  const auto questions = read_questions(flags.file);
  long long longest = 0, asked = 0;
  for (const ChoiceQuestion& question : questions) {
    if (question.answer >= 0) ++asked;
    for (const std::string& choice : question.choices)
      longest = std::max(longest, static_cast<long long>(
                                      tokens_of_choice(question.prompt, choice, flags.bos, *vocabulary).first.size()));
  }
  const auto list = method_list(flags.list, model->hyper(), vocabulary.get(), longest);
  const auto decoder = std::make_shared<Decoder>(model, threads_of(flags.threads, model->hyper()));
  nlohmann::json runs = nlohmann::json::array();
  for (const auto& method : list) {
    Session session(decoder, method.options);
    Progress bar(method.name, "questions");
    CacheUse use(method.name, method.options);
    nlohmann::json lines = nlohmann::json::array();
    long long right = 0, right_per_byte = 0, done = 0;
    for (const ChoiceQuestion& question : questions) {
      if (interrupted()) break;
      nlohmann::json choices = nlohmann::json::array();
      std::vector<double> sums, per_byte;
      for (const std::string& choice : question.choices) {
        const auto [tokens, from] = tokens_of_choice(question.prompt, choice, flags.bos, *vocabulary);
        const Likelihood one = likelihood_of(session, tokens, from);
        use.add(session.cache(), session.cache().evicted());
        sums.push_back(one.logprob);
        per_byte.push_back(one.logprob / static_cast<double>(std::max<std::size_t>(1, choice.size())));
        choices.push_back({{"logprob", one.logprob}, {"tokens", one.tokens}, {"greedy", one.greedy}});
      }
      const auto best = [](const auto& of) { return static_cast<int>(std::ranges::max_element(of) - of.begin()); };
      right += question.answer == best(sums) ? 1 : 0;
      right_per_byte += question.answer == best(per_byte) ? 1 : 0;
      lines.push_back({{"best", best(sums)}, {"choices", choices}});
      bar.update(++done, std::ssize(questions));
    }
    bar.clear();
    nlohmann::json run = as_json(use);
    run["questions"] = lines;
    const auto share = [&](long long count) {
      return asked == 0 ? nlohmann::json(nullptr)
                        : nlohmann::json(static_cast<double>(count) / static_cast<double>(asked));
    };
    run["acc"] = share(right);
    run["acc_norm"] = share(right_per_byte);
    if (!flags.json)
      fmt::print("{}: {} questions, acc {}, acc_norm {}; {}\n", method.name, done, run["acc"].dump(),
                 run["acc_norm"].dump(), cache_use_text(use));
    runs.push_back(std::move(run));
    warn_of_nothing_evicted(use);
  }
  if (flags.json)
    fmt::print("{}\n", nlohmann::json{{"task", "likelihood"},
                                      {"model", model_name(*model)},
                                      {"file", flags.file},
                                      {"bos", flags.bos},
                                      {"runs", runs}}
                           .dump(2));
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

void add_eval_likelihood(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<LikelihoodFlags>();
  CLI::App* command =
      eval.add_subcommand("likelihood", "Log likelihoods of continuations; accuracy of multiple choice");
  add_text_model_flags(*command, flags->model);
  command
      ->add_option("-f,--file", flags->file,
                   "one JSON object a line: {\"prompt\": TEXT, \"choices\": [TEXT, ...], \"answer\": NUMBER}")
      ->type_name("FILE")
      ->required();
  command->add_flag("--bos", flags->bos, "begin each text with BOS (lm-evaluation-harness does not by default)");
  add_method_list(*command, flags->list, {"full"});
  add_thread_flags(*command, flags->threads);
  add_json_flag(*command, flags->json);
  command->callback([flags, &action] { action = [flags] { return run_likelihood(*flags); }; });
}

}  // namespace palimpsest::cli
