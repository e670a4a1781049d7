#include "palimpsest/fit/comparison.h"

#include <fmt/format.h>

#include "palimpsest/engine/repeat.h"
#include "palimpsest/eval/perplexity.h"

namespace palimpsest {
namespace {

constexpr int kQuestionChunk = 256, kPerplexityChunk = 32;  // tokens; small, since a chunk is attended to whole

}  // namespace

std::vector<ComparisonRow> comparison_rows(const FittedFiles& files, bool rotary, bool all) {
  const std::string keydiff = "auto:schedule=step,policy=keydiff", kvzap = "auto:schedule=step,policy=kvzap";
  std::vector<ComparisonRow> rows = {
      {"auto, not fitted (keydiff)", keydiff},
      {"keydiff:split=profile", keydiff, "", files.profile},
      {"auto, fitted (kvzap)", kvzap, files.kvzap},
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
    : decoder_(std::move(decoder)),
      vocabulary_(std::move(vocabulary)),
      prompts_(recall_prompts(vocabulary_, Haystack(text, "the text"), contexts, length)),
      held_(std::move(held)),
      length_(length) {}

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
  for (const RecallPrompt& each : prompts_) {
    if (!go_on()) return std::nullopt;
    result.right += count_right(each, asker.ask(each.prompt, QuestionSeen::kAfter, kRecallAnswer));
    result.asked += static_cast<int>(each.answers.size());
  }
  Session session(decoder_, options(static_cast<int>(held_.size()), kPerplexityChunk));
  const Perplexity of = perplexity(session, held_, 1024, [&](long long, long long) { return go_on(); });
  if (!of.complete) return std::nullopt;
  result.nll = of.nll;
  return result;
}

}  // namespace palimpsest
