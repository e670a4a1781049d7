// Memory maps (engine/sequence/memory_map.h) as arrays, one number for each token.
#include "session.h"

namespace palimpsest::python {
namespace {

// A column of rows.
template <typename T, typename Row, typename Get>
auto column(const std::vector<Row>& rows, Get get) {
  std::vector<T> out;
  out.reserve(rows.size());
  for (const Row& row : rows) out.push_back(static_cast<T>(get(row)));
  return as_array(std::move(out), {rows.size()});
}

nb::dict arrays_of(const MemoryMap& map) {
  using Token = MemoryMap::Token;
  nb::dict out;
  out["first"] = map.first;
  out["next"] = map.next;
  out["layers"] = map.layers;
  out["heads"] = map.heads;
  out["ids"] = column<std::int64_t>(map.tokens, [](const Token& t) { return t.id; });
  out["kept"] = column<std::int64_t>(map.tokens, [](const Token& t) { return t.kept; });
  out["merged"] = column<std::int64_t>(map.tokens, [](const Token& t) { return t.merged; });
  out["evicted_at"] = column<std::int64_t>(map.tokens, [](const Token& t) { return t.evicted_at; });
  out["sink"] = column<std::uint8_t>(map.tokens, [](const Token& t) { return t.sink; });
  out["pinned"] = column<std::uint8_t>(map.tokens, [](const Token& t) { return t.pinned; });
  out["positions"] = column<std::int64_t>(map.head, [](const HeadToken& t) { return t.position; });
  out["slots"] = column<std::int64_t>(map.head, [](const HeadToken& t) { return t.slot; });
  out["scores"] = column<float>(map.head, [](const HeadToken& t) { return t.score; });
  out["into"] = column<std::int64_t>(map.head, [](const HeadToken& t) { return t.into; });
  out["cache_bytes"] = map.bytes.cache;
  out["limit_bytes"] = map.bytes.limit;
  out["full_bytes"] = map.bytes.full;
  return out;
}

}  // namespace

MemoryMap PySession::memory_map(const MemoryQuery& query) {
  const auto locked = lock();
  MemoryMap map = session_.memory_map(query);
  for (std::size_t i = 0; i < map.tokens.size(); ++i)
    if (const std::size_t p = static_cast<std::size_t>(map.first) + i; p < tokens_.size())
      map.tokens[i].id = tokens_[p];
  return map;
}

void bind_memory(nb::module_& m) {
  m.def(
      "memory_map",
      [](PySession& session, Position first, Position max, int layer, int head) {
        MemoryMap map;
        {
          const nb::gil_scoped_release released;
          map = session.memory_map({.first = first, .max = max, .layer = layer, .head = head});
        }
        return arrays_of(map);
      },
      nb::arg("session"), nb::arg("first"), nb::arg("max"), nb::arg("layer"), nb::arg("head"));
}

}  // namespace palimpsest::python
