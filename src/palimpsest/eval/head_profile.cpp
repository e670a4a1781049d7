#include "palimpsest/eval/head_profile.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/budget/ada.h"
#include "palimpsest/core/error.h"
#include "palimpsest/eval/read_weights.h"

namespace palimpsest {

std::vector<double> profile_shares(std::span<const std::vector<float>> future, double keep) {
  const auto kept = std::max(1LL, std::llround(keep * static_cast<double>(future.front().size())));
  const std::vector<int> counts = ada_counts(future, static_cast<int>(kept) * static_cast<int>(future.size()));
  std::vector<double> shares;
  for (const int count : counts) shares.push_back(static_cast<double>(count) / static_cast<double>(kept));
  return shares;
}

std::vector<double> head_profile(Decoder& decoder, std::span<const TokenId> text, const ProfileOptions& options,
                                 const std::function<bool(long long done, long long total)>& progress) {
  const auto half = static_cast<long long>(text.size() / 2);
  const long long competing = half - options.sinks - options.recent;
  const auto heads = static_cast<std::size_t>(decoder.model().hyper().geometry.heads());
  const auto kept = std::llround(options.keep * static_cast<double>(competing));
  if (competing < 1 || kept < 1)
    fail(
        "a text of {} tokens: its first half has too few behind {} sinks and before the newest {} to keep {} of them: "
        "give a longer one",
        text.size(), options.sinks, options.recent, options.keep);
  std::vector<std::vector<float>> future(heads, std::vector<float>(static_cast<std::size_t>(competing)));
  const auto add = [&](const HeadWeights& of) {
    auto& sum = future[static_cast<std::size_t>(of.head)];
    for (std::size_t slot = 0; slot < of.position.size(); ++slot) {
      const long long at = of.position[slot] - options.sinks;
      if (at >= 0 && at < competing) sum[static_cast<std::size_t>(at)] += of.weight[slot];
    }
  };
  read_weights(decoder, text, half, WeightReduction::kMeanOverGroup, add, progress);
  return profile_shares(future, options.keep);
}

}  // namespace palimpsest
