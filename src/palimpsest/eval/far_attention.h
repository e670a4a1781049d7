// Which heads look something up far back: how much one token that a cache of sinks and newest tokens has lost means to
// their queries.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "palimpsest/graph/decoder.h"

namespace palimpsest {

// Of each KV head, [heads]: the greatest weight that a query of the group gives to a token that is
// neither among the first `sinks` nor among the last `recent`, itself included; the mean over all queries that have
// such tokens. (Their sum says less: a head that looks nothing up spreads its attention over all of them, one that
// looks something up now and then rests on the sinks meanwhile.) The text is read with every token kept, on the CPU's
// own path. Throws Error for a text without such queries.
std::vector<double> far_attention(Decoder& decoder, std::span<const TokenId> text, int sinks, int recent,
                                  const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
