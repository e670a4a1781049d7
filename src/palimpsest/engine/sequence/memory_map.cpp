#include "palimpsest/engine/sequence/memory_map.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/cache/footprint.h"
#include "palimpsest/cache/merged.h"
#include "palimpsest/core/error.h"

namespace palimpsest {

int flat_head(const HeadGeometry& geometry, int layer, int head) {
  if (layer < 0 || layer >= geometry.layers())
    fail("there is no layer {}: the model has layers 0 to {}", layer, geometry.layers() - 1);
  if (const int heads = geometry.layer(layer).kv_heads; head < 0 || head >= heads)
    fail("layer {} has no KV head {}: it has {}", layer, head, heads);
  return geometry.head(layer, head);
}

std::vector<HeadToken> head_memory(const Cache& cache, int head) {
  const int t = cache.table_of(head);
  const SlotTable& table = cache.table(t);
  std::vector<HeadToken> out;
  out.reserve(at(table.occupied()));
  for (int slot = 0; slot < table.slots(); ++slot)
    if (const Position position = table.position(slot); position != kNoPosition)
      out.push_back({.position = position, .slot = slot, .score = table.score()[at(slot)]});
  if (const MergedTokens* const merged = cache.merged(t))
    for (const MergedToken& token : merged->tokens())
      if (token.in_cluster())
        out.push_back(
            {.position = token.position, .slot = token.slot, .score = token.score, .into = table.position(token.slot)});
  std::ranges::sort(out, {}, &HeadToken::position);
  return out;
}

MemoryBytes memory_bytes(const Sequence& sequence) {
  const Cache& cache = sequence.cache();
  const std::size_t in_use = cache.bytes_in_use();
  return {
      .cache = in_use,
      .limit = sequence.options().method.bounded() ? decode_bytes(sequence.plan()).pages : 0,
      .full = cache.nothing_evicted() ? in_use : footprint(cache.options(), Occupancy{.tokens = cache.next()}).rows};
}

MemoryMap memory_map(const Sequence& sequence, std::span<const TokenId> text, const MemoryLog* log,
                     const MemoryQuery& query) {
  const Method& method = sequence.options().method;
  if (!method.cache) fail("method {} has no cache, so it has no memory map: choose another", method.name);
  const Cache& cache = sequence.cache();
  const HeadGeometry& geometry = cache.geometry();
  const Position next = cache.next(), first = std::clamp<Position>(query.first, 0, next);
  const Position end = std::min(next, first + std::clamp<Position>(query.max, 0, MemoryQuery::kMaxTokens));
  MemoryMap map{.first = first, .next = next, .layers = geometry.layers(), .heads = geometry.heads()};
  map.tokens.resize(static_cast<std::size_t>(end - first));
  const auto token_at = [&](Position position) {
    return position < first || position >= end ? nullptr : &map.tokens[static_cast<std::size_t>(position - first)];
  };
  for (Position p = first; p < end; ++p) {
    MemoryMap::Token& token = *token_at(p);
    if (p < std::ssize(text)) token.id = text[static_cast<std::size_t>(p)];
    token.sink = method.evicts() && p < method.sinks();
    token.pinned =
        std::ranges::any_of(method.protection.pins, [p](const PositionRange& pin) { return pin.contains(p); });
  }

  std::vector<int> heads_of(at(cache.tables()));
  for (int head = 0; head < geometry.heads(); ++head) ++heads_of[at(cache.table_of(head))];
  for (int t = 0; t < cache.tables(); ++t) {
    for (const Position position : cache.table(t).position())
      if (auto* const token = position == kNoPosition ? nullptr : token_at(position)) token->kept += heads_of[at(t)];
    if (const MergedTokens* const merged = cache.merged(t))
      for (const MergedToken& each : merged->tokens())
        if (auto* const token = token_at(each.position); token != nullptr && each.in_cluster())
          token->merged += heads_of[at(t)];
  }
  if (log != nullptr)
    for (const MemoryChange& change : log->changes())  // the last one counts
      if (auto* const token = token_at(change.position); token != nullptr && token->kept + token->merged == 0)
        token->evicted_at = change.at;
  if (query.layer >= 0 || query.head >= 0)
    sequence.fetch_scores(), map.head = head_memory(cache, flat_head(geometry, query.layer, query.head));
  map.bytes = memory_bytes(sequence);
  return map;
}

}  // namespace palimpsest
