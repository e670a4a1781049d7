// palimpsest eval needle: retrieval of a needle from a long text, over depths and lengths.
#include "palimpsest/eval/needle.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/bootstrap.h"
#include "palimpsest/eval/data.h"
#include "palimpsest/eval_questions.h"
#include "palimpsest/interrupt.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

struct NeedleFlags {
  QuestionFlags questions;
  std::string kind = "fact", kinds;
  std::vector<std::string> haystack;
  std::vector<long long> lengths = {512, 1024, 2048};
  std::vector<double> depths = {0, 0.25, 0.5, 0.75, 1};
  long long samples = 6, asked = 3;
  std::uint64_t seed = 1;
};

std::vector<NeedleKind> all_kinds(const std::string& file) {
  std::vector<NeedleKind> kinds = needle_kinds();
  if (!file.empty())
    for (auto& kind : parse_needle_kinds(read_text(file, "the file of kinds"), file)) kinds.push_back(std::move(kind));
  return kinds;
}

struct Cell {
  long long length = 0;
  double depth = 0;
  long long asked = 0, right = 0;
  double share() const { return asked > 0 ? static_cast<double>(right) / static_cast<double>(asked) : std::nan(""); }
};

struct Grid {
  std::vector<Cell> cells;          // by length, then depth
  std::vector<TextBlock> contexts;  // right answers of each context: the blocks of the bootstrap
  long long asked() const {
    long long sum = 0;
    for (const Cell& each : cells) sum += each.asked;
    return sum;
  }
  long long right() const {
    long long sum = 0;
    for (const Cell& each : cells) sum += each.right;
    return sum;
  }
};

nlohmann::json as_json(const Questioner& questioner, const Questioner::Run& run, const Grid& grid) {
  nlohmann::json out = questioner.json_of(run), cells = nlohmann::json::array();
  for (const Cell& each : grid.cells)
    cells.push_back({{"length", each.length},
                     {"depth", each.depth},
                     {"questions", each.asked},
                     {"right", each.right},
                     {"share", finite(each.share())}});
  const Interval share = wilson(grid.right(), grid.asked()), contexts = bootstrap(grid.contexts);
  out.update({{"questions", grid.asked()},
              {"right", grid.right()},
              {"score", finite(share.mean)},
              {"score_low", finite(share.low)},
              {"score_high", finite(share.high)},
              {"contexts_low", finite(contexts.low)},
              {"contexts_high", finite(contexts.high)},
              {"cells", cells}});
  return out;
}

void print_grid(const Questioner::Run& run, const Grid& grid, const NeedleFlags& flags) {
  const Interval share = wilson(grid.right(), grid.asked());
  fmt::print("{}: {:.1f}% of {} correct{}; {}; {:.0f} prompt tokens/s, {:.3f} ms per token\n", run.cache_use.name,
             100 * share.mean, thousands(grid.asked()),
             std::isfinite(share.low) ? fmt::format(" [{:.1f}, {:.1f}]", 100 * share.low, 100 * share.high) : "",
             cache_use_text(run.cache_use),
             1000 * static_cast<double>(run.prompt_tokens) / std::max(1e-9, run.prompt_ms), run.tpot_ms());
  fmt::print("{:>10}", "depth");
  for (const long long length : flags.lengths) fmt::print("  {:>7}", thousands(length));
  fmt::print("\n");
  for (std::size_t d = 0; d < flags.depths.size(); ++d) {
    fmt::print("{:>9.0f}%", 100 * flags.depths[d]);
    for (std::size_t l = 0; l < flags.lengths.size(); ++l)
      fmt::print("  {:>6.0f}%", 100 * grid.cells[l * flags.depths.size() + d].share());
    fmt::print("\n");
  }
}

void check_needle(const NeedleFlags& flags) {
  if (flags.lengths.empty() || flags.depths.empty()) fail("give at least one length and one depth");
  for (const double depth : flags.depths)
    if (!(depth >= 0 && depth <= 1)) fail("--depths {}: give fractions from 0 (start of the text) to 1 (end)", depth);
}

int run_needle(const NeedleFlags& flags) {
  check_needle(flags);
  const auto kinds = all_kinds(flags.kinds);
  NeedleKind kind = needle_kind(kinds, flags.kind);
  TextModel model = load_text_model(flags.questions.model);
  const Haystack haystack = read_haystack(flags.haystack);
  Questioner questioner(flags.questions, model, *std::ranges::max_element(flags.lengths));
  if (!kind.reply.empty()) kind.unit = "{text}" + questioner.between_messages(kind.reply);

  const std::size_t depths = flags.depths.size(), samples = static_cast<std::size_t>(flags.samples);
  const std::size_t count = flags.lengths.size() * depths * samples;
  std::vector<Grid> grids(questioner.runs().size());
  for (Grid& grid : grids)
    for (const long long length : flags.lengths)
      for (const double depth : flags.depths) grid.cells.push_back({length, depth});
  NeedlePrompt needle;
  questioner.ask(
      count, "needle",
      [&](std::size_t i, AnswerOptions& options) {
        const Cell& cell = grids.front().cells[i / samples];
        Draw draw(flags.seed * 1'000'003 + i);  // one seed per prompt: more samples do not change the others
        needle = make_needle(kind, {cell.length, cell.depth, static_cast<int>(flags.asked)}, haystack,
                             questioner.vocabulary(), draw);
        options = {.max_tokens = kind.tokens, .stop_at_newline = true};
        Prompt prompt = questioner.prompt(needle.context, needle.questions, needle.starts);
        prompt.expected = needle.answers;
        return prompt;
      },
      [&](std::size_t run, std::size_t i, const std::vector<QuestionAnswer>& answers) {
        Cell& cell = grids[run].cells[i / samples];
        TextBlock& block = grids[run].contexts.emplace_back();
        for (std::size_t q = 0; q < answers.size(); ++q) {
          const bool right = contains_word(answers[q].text, needle.answers[q]);
          ++cell.asked;
          cell.right += right ? 1 : 0;
          block.sum += right ? 1 : 0;
          block.weight += 1;
        }
      });

  if (flags.questions.json) {
    nlohmann::json runs = nlohmann::json::array();
    for (std::size_t r = 0; r < grids.size(); ++r) runs.push_back(as_json(questioner, questioner.runs()[r], grids[r]));
    fmt::print("{}\n", nlohmann::json{{"task", "needle"},
                                      {"kind", kind.name},
                                      {"model", model_name(*model.model)},
                                      {"haystack", haystack.name()},
                                      {"lengths", flags.lengths},
                                      {"depths", flags.depths},
                                      {"samples", flags.samples},
                                      {"seed", flags.seed},
                                      {"runs", runs}}
                           .dump(2));
  } else {
    fmt::print("{}: {}; {} contexts per cell, question seen {}; {}; {}\n", kind.name, kind.about, flags.samples,
               flags.questions.seen, haystack.name(), model_name(*model.model));
    for (std::size_t r = 0; r < grids.size(); ++r) print_grid(questioner.runs()[r], grids[r], flags);
  }
  for (std::size_t r = 0; r < grids.size(); ++r) {
    const CacheUse& cache_use = questioner.runs()[r].cache_use;
    warn_of_nothing_evicted(cache_use);
    if (cache_use.evicted == 0 && grids[r].asked() > 0 && grids[r].right() == 0)
      fmt::print(stderr, "palimpsest: {}: no answer was correct without any eviction: this model cannot solve '{}'\n",
                 cache_use.name, kind.name);
  }
  return interrupted() ? kInterrupted : kOk;
}

std::string kinds_help() {
  std::string out = "kind of needle:";
  for (const NeedleKind& kind : needle_kinds()) out += fmt::format(" {}: {};", kind.name, kind.about);
  return out.substr(0, out.size() - 1);
}

}  // namespace

void add_eval_needle(CLI::App& eval, Action& action) {
  auto flags = std::make_shared<NeedleFlags>();
  CLI::App* command = eval.add_subcommand("needle", "Needle in a haystack: retrieval at depths x lengths");
  add_question_flags(*command, flags->questions);
  command->add_option("--kind", flags->kind, kinds_help())->type_name("KIND")->capture_default_str();
  command->add_option("--kinds", flags->kinds, "JSON file of additional kinds (docs/evaluation.md)")->type_name("FILE");
  command->add_option("--haystack", flags->haystack, "haystack: text file or folder of .txt files; may be repeated")
      ->type_name("FILE")
      ->default_str("included stories")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command->add_option("--lengths", flags->lengths, "tokens of prompt and answer")
      ->type_name("TOKENS,...")
      ->default_str("512,1024,2048")
      ->delimiter(',')
      ->check(CLI::Range(16, 1 << 24));
  command->add_option("--depths", flags->depths, "depths of the needle: 0 is the start of the text, 1 the end")
      ->type_name("SHARE,...")
      ->default_str("0,0.25,0.5,0.75,1")
      ->delimiter(',');
  command->add_option("--samples", flags->samples, "contexts per length and depth")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--questions,--asked", flags->asked, "questions per context, if the kind has as many")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--seed", flags->seed, "random seed of needles and depths")->capture_default_str();
  command->callback([flags, &action] { action = [flags] { return run_needle(*flags); }; });
}

}  // namespace palimpsest::cli
