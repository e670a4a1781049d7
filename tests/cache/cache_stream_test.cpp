// Keys and values that do not fit their cache type are refused when a cache is saved or loaded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "tests/support/error_message.h"

namespace palimpsest::testing {
namespace {

constexpr auto& kTypes = kCacheTypes;
constexpr int kTokens = 21, kWidth = 32;

std::vector<std::byte> saved(const Cache& cache) {
  std::vector<std::byte> bytes;
  ByteWriter out([&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); });
  cache.save(out);
  return bytes;
}

// One key or value of the last head's last token is replaced, in the cache and in a saved file.
TEST(CacheStream, KeysAndValuesThatDoNotFitAreRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const CacheType keys : kTypes)
    for (const CacheType values : kTypes)
      for (const bool rotated_half : {false, true})
        for (const bool value : {false, true})
          for (const float number : {1.0F, 1e16F, 1.01e16F, -infinity, std::nanf("")}) {
            if (rotated_half && !kv_format(keys).elementwise()) continue;  // not offered
            const CacheOptions options = {
                .geometry = HeadGeometry::uniform(2, 2, kWidth, kWidth).with_types(keys, values),
                .page_size = 16,
                .rotated_half = rotated_half};
            Cache cache(options);
            cache.insert(kTokens);
            std::vector<float> row(kWidth, 0.5F);
            for (int layer = 0; layer < 2; ++layer)
              for (int head = 0; head < 2; ++head)
                for (int slot = 0; slot < kTokens; ++slot) {
                  const LayerView view = cache.view(layer);
                  std::byte* const page = view.head[head].page[slot / view.page_size];
                  store_key(view, page, slot % view.page_size, row.data());
                  store_value(view, page, slot % view.page_size, row.data());
                }
            std::vector<std::byte> bytes = saved(cache);
            const LayerView view = cache.view(1);
            std::byte* const page = view.head[1].page[kTokens / view.page_size];
            row[7] = number;
            (value ? store_value : store_key)(view, page, kTokens % view.page_size - 1, row.data());
            std::copy_n(page, page_bytes(view), bytes.end() - static_cast<std::ptrdiff_t>(page_bytes(view)));

            const CacheType type = value ? values : keys;
            // NaN is not stored as such in q8_0, and sets no scale.
            const bool fits = std::abs(number) <= kv_format(type).largest;
            const bool refused = !fits && !(!kv_format(type).elementwise() && std::isnan(number));
            const std::string on_save = error_message([&] { saved(cache); });
            const std::string on_load = error_message([&] {
              Cache restored(options);
              ByteReader in(bytes, "a cache");
              restored.load(in);
            });
            for (const std::string& said : {on_save, on_load}) {
              EXPECT_EQ(said.find("a key or value that is not a number, or too large") != std::string::npos, refused)
                  << kv_format(type).name << " " << number << ": " << said;
              EXPECT_EQ(said.empty(), !refused) << said;
            }
          }
}

}  // namespace
}  // namespace palimpsest::testing
