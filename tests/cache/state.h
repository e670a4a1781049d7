// All state of a cache that a rollback must restore, bit by bit.
#pragma once

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "palimpsest/cache/cache.h"

namespace palimpsest::testing {

struct State {
  explicit State(const Cache& cache)
      : evicted(cache.evicted()), in_use(cache.bytes_in_use()), peak(cache.bytes_peak()), pages(cache.pages()) {
    ByteWriter out([&](std::span<const std::byte> more) { tables.insert(tables.end(), more.begin(), more.end()); });
    for (int t = 0; t < cache.tables(); ++t) {
      const SlotTable& table = cache.table(t);
      table.save(out);  // positions, scores, columns, ranks, tokens per page, newly inserted slots, free queue
      out.put(table.tokens_read());
      for (int slot = 0; slot < table.slots(); ++slot) out.put(table.ordinal(slot));
      out.bytes(std::as_bytes(std::span(table.view().relative, static_cast<std::size_t>(table.slots()))));
      if (cache.merged(t) != nullptr) cache.merged(t)->save(out);
    }
    const HeadGeometry& geometry = cache.options().geometry;
    for (int layer = 0; layer < geometry.layers(); ++layer)  // the kernels' views
      for (int head = 0; head < geometry.layer(layer).kv_heads; ++head) {
        const HeadPages& view = cache.view(layer).head[head];
        const auto slots = static_cast<std::size_t>(view.slots->slots);
        const std::size_t size = slots / static_cast<std::size_t>(cache.options().page_size);
        if (cache.options().pages) out.bytes(std::as_bytes(std::span(view.page.id, size)));
        out.bytes(std::as_bytes(std::span(view.slots->relative, slots)));
        out.bytes(std::as_bytes(std::span(view.slots->inserted, static_cast<std::size_t>(view.slots->inserted_count))));
        if (view.slots->rank != nullptr) out.bytes(std::as_bytes(std::span(view.slots->rank, slots)));
      }
    if (pages.empty()) return;
    for (const PageId page : pages) {
      const std::byte* const at = cache.pool()->address(page);
      bytes.insert(bytes.end(), at, at + cache.pool()->bytes_of(page));
    }
  }
  bool operator==(const State&) const = default;

  long long evicted;
  std::size_t in_use, peak;
  std::vector<PageId> pages;
  std::vector<std::byte> tables, bytes;
};

}  // namespace palimpsest::testing
