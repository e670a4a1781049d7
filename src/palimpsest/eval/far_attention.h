// Finds heads that retrieve distant tokens: how much weight their queries give to one token that a cache of sinks and
// newest tokens would have evicted.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

// Returns for each KV head, [heads]: the max weight that a query of the group gives to a token that is neither among
// the first `sinks` nor among the last `recent` (the query's own included), as mean over all queries that have such
// tokens. (The sum of these weights separates heads worse: a head that retrieves nothing spreads its attention over all
// of them, one that retrieves now and then attends to the sinks otherwise.) Reads the text with the full cache, on the
// CPU's fast path. Throws Error for a text without such queries.
std::vector<double> far_attention(Decoder& decoder, std::span<const TokenId> text, int sinks, int recent,
                                  const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
