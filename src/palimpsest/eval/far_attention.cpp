#include "palimpsest/eval/far_attention.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/eval/read_weights.h"

namespace palimpsest {

std::vector<double> far_attention(Decoder& decoder, std::span<const TokenId> text, int sinks, int recent,
                                  const std::function<bool(long long done, long long total)>& progress) {
  const auto total = static_cast<long long>(text.size());
  if (total <= sinks + recent)
    fail("a text of {} tokens has none behind {} sinks and before the newest {}: give a longer one", total, sinks,
         recent);
  std::vector<double> shares(static_cast<std::size_t>(decoder.model().hyper().geometry.heads()));
  const auto add = [&](const HeadWeights& of) {
    float max = 0;
    for (std::size_t slot = 0; slot < of.position.size(); ++slot)
      if (of.position[slot] >= sinks && of.position[slot] < of.next - recent) max = std::max(max, of.weight[slot]);
    shares[static_cast<std::size_t>(of.head)] += double{max};
  };
  const long long first = sinks + recent;
  const long long done = read_weights(decoder, text, first, WeightReduction::kMaxOverGroup, add, progress);
  for (double& share : shares) share /= static_cast<double>(std::max(1LL, done - first));
  return shares;
}

}  // namespace palimpsest
