#include "palimpsest/fit/comparison.h"

#include <fmt/format.h>

#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/eval/needle.h"
#include "palimpsest/eval/perplexity.h"
#include "palimpsest/evict/auto.h"
#include "palimpsest/text/chat_template.h"

namespace palimpsest {
namespace {

constexpr int kQuestionChunk = 256, kPerplexityChunk = 32;  // tokens; small, since a chunk is attended to whole

}  // namespace

std::vector<ComparisonRow> comparison_rows(const FittedFiles& files, bool rotary, bool all) {
  const std::string chosen = fmt::format("auto:schedule=step,policy={},split=uniform", kPolicyAsTokensCome),
                    kvzap = "auto:schedule=step,policy=kvzap,split=uniform";
  std::vector<ComparisonRow> rows = {
      {fmt::format("auto, not fitted ({})", kPolicyAsTokensCome), chosen},
      {fmt::format("auto, fitted ({})", kPolicyAsTokensCome), chosen, "", files.profile},
      {"kvzap", kvzap, files.kvzap},
      {"kvzap:split=profile", kvzap, files.kvzap, files.profile},
      {"streaming", "streaming"},
      {"duo", "duo:sinks=4", "", files.streaming},
  };
  if (!all) return rows;
  if (rotary) rows.push_back({"triattention", "triattention:sinks=4,every=16,recent=0.25", files.centres});
  rows.push_back({"temporal", "temporal:recent=0.25", files.temporal});
  rows.push_back({"learned", "learned:recent=0.25", files.learned});
  rows.push_back({"h2o", "h2o:sinks=4,recent=0.25"});
  return rows;
}

FitComparison::FitComparison(std::shared_ptr<Decoder> decoder, std::shared_ptr<Vocabulary> vocabulary,
                             const std::string& text, std::vector<TokenId> held, int contexts, int length)
    : decoder_(std::move(decoder)), vocabulary_(std::move(vocabulary)), held_(std::move(held)), length_(length) {
  const std::vector<NeedleKind> kinds = needle_kinds();
  const NeedleKind& words = needle_kind(kinds, "word");
  const auto chat = vocabulary_->has_chat_template() ? ChatTemplate::load(vocabulary_, "") : nullptr;
  const Haystack haystack(text, "the text");
  Draw draw(1);
  for (int i = 0; i < contexts; ++i) {
    // One fact in each quarter of the text.
    NeedlePrompt made =
        make_needle(words, {.length = length, .depth = 0.125, .questions = kQuestions}, haystack, *vocabulary_, draw);
    prompts_.push_back({.prompt = question_prompt(*vocabulary_, chat.get(), made.context, made.questions, made.starts),
                        .answers = std::move(made.answers),
                        .options = {.max_tokens = words.tokens}});
  }
}

std::optional<FitResult> FitComparison::measure(const ComparisonRow& row, int part,
                                                const std::function<bool()>& go_on) const {
  const auto options = [&](int tokens, int chunk) {
    SessionOptions out;
    out.method = parse_method(part == 0 ? "full" : row.method);
    if (part > 0) {
      out.method.budget = tokens / part;
      if (!row.scorer.empty()) out.method.scorer = row.scorer;
      if (!row.split.empty()) out.method.split = Split(row.split);
    }
    out.chunk = chunk;
    out.repeat = repeat_instruction(*vocabulary_);
    return out;
  };
  FitResult result;
  Asker asker(decoder_, vocabulary_, options(length_, kQuestionChunk));
  for (const Asked& each : prompts_) {
    if (!go_on()) return std::nullopt;
    const std::vector<QuestionAnswer> answers = asker.ask(each.prompt, QuestionSeen::kAfter, each.options);
    for (std::size_t i = 0; i < answers.size(); ++i)
      result.right += contains_word(answers[i].text, each.answers[i]) ? 1 : 0;
    result.asked += static_cast<int>(answers.size());
  }
  Session session(decoder_, options(static_cast<int>(held_.size()), kPerplexityChunk));
  const Perplexity of = perplexity(session, held_, 1024, [&](long long, long long) { return go_on(); });
  if (!of.complete) return std::nullopt;
  result.nll = of.nll;
  return result;
}

}  // namespace palimpsest
