#include "palimpsest/eval/head_profile.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/budget/ada.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval/repetition.h"

namespace palimpsest {
namespace {

constexpr int kSinks = 4;

}  // namespace

int min_profile_tokens(double keep) {
  return kSinks + static_cast<int>(std::ceil(1 / keep));
}

std::vector<double> profile_shares(std::span<const float> scores, int heads, double keep) {
  const std::size_t tokens = scores.size() / at(heads);
  std::vector<std::vector<float>> of_heads;
  for (std::size_t first = 0; first < scores.size(); first += tokens)
    of_heads.emplace_back(scores.begin() + static_cast<std::ptrdiff_t>(first + kSinks),
                          scores.begin() + static_cast<std::ptrdiff_t>(first + tokens));
  const auto kept = std::max(1LL, std::llround(keep * static_cast<double>(tokens - kSinks)));
  std::vector<double> shares;
  for (const int count : ada_counts(of_heads, static_cast<int>(kept) * heads))
    shares.push_back(static_cast<double>(count) / static_cast<double>(kept));
  return shares;
}

std::vector<double> head_profile(Decoder& decoder, std::span<const TokenId> text, std::span<const TokenId> instruction,
                                 double keep, const std::function<bool(long long done, long long total)>& progress) {
  const Hyperparameters& hyper = decoder.model().hyper();
  const int least = min_profile_tokens(keep), tokens = static_cast<int>(text.size());
  if (hyper.geometry.heads() == 0) fail("this model has no attention heads that could share a budget");
  if (tokens < least)
    fail("a text of {} tokens is too short for shares of heads: give one of at least {}", tokens, least);
  if (hyper.trained_context > 0 && tokens + static_cast<int>(kRepeatedPart) > hyper.trained_context)
    fail("a text of {} tokens and {} of its repetition exceed the trained context of {}: give a shorter one", tokens,
         kRepeatedPart, hyper.trained_context);
  FullReader reader(decoder, "shares of heads are measured");
  std::vector<float> scores(at(hyper.geometry.heads()) * text.size());
  long long done = 0;
  const auto read = [&](std::size_t more) {
    done += static_cast<long long>(more);
    return !progress || progress(done, 2 * static_cast<long long>(text.size()));
  };
  bool on = true;
  for (auto rest = text; on && !rest.empty();) {
    const auto chunk = rest.first(std::min(kRepeatedPart, rest.size()));
    reader.read(chunk, [](SequenceStep&) {});
    rest = rest.subspan(chunk.size());
    on = read(chunk.size());
  }
  if (on) read_repetition(reader, text, instruction, scores, read);
  return profile_shares(scores, hyper.geometry.heads(), keep);
}

}  // namespace palimpsest
