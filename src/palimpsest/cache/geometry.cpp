#include "palimpsest/cache/geometry.h"

#include <algorithm>
#include <cassert>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

// Max heads of all layers, and max elements of a row of one layer's heads: products with a few small factors do not
// overflow.
constexpr std::int64_t kMaxHeads = 1 << 22, kMaxRow = 1 << 28;

void check(const LayerGeometry& l, int index) {
  const auto wrong = [&](const char* what) {
    fail("layer {} has {} query heads, {} KV heads, keys of {} and values of {} dimensions, a window of {}: {}", index,
         l.query_heads, l.kv_heads, l.key_width, l.value_width, l.window, what);
  };
  if (l.kv_heads < 0 || l.query_heads < 0 || l.key_width < 0 || l.value_width < 0 || l.window < 1)
    wrong("no count is negative, no window empty");
  if (l.kv_heads == 0) return;
  if (l.query_heads == 0 || l.query_heads % l.kv_heads != 0)
    wrong("query heads must be a multiple of the KV heads that they share");
  if (l.key_width == 0 || l.value_width == 0) wrong("widths must be at least 1");
  if (std::int64_t{l.query_heads} * std::max(l.key_width, l.value_width) > kMaxRow)
    wrong("a row of all heads is too long");
}

}  // namespace

HeadGeometry::HeadGeometry(std::vector<LayerGeometry> layers) : layers_(std::move(layers)) {
  std::int64_t heads = 0, query_heads = 0;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerGeometry& l = layers_[i];
    check(l, static_cast<int>(i));
    heads += l.kv_heads;
    query_heads += l.query_heads;
    if (heads > kMaxHeads || query_heads > kMaxHeads)
      fail("{} layers have more than {} heads in all: damaged", layers_.size(), kMaxHeads);
    first_head_.push_back(static_cast<int>(heads));
    layer_of_.resize(static_cast<std::size_t>(heads), static_cast<int>(i));
    max_kv_heads_ = std::max(max_kv_heads_, l.kv_heads);
    max_group_ = std::max(max_group_, l.group());
    if (l.kv_heads > 0) {
      one_width_ =
          one_width_ && (max_key_width_ == 0 || (l.key_width == max_key_width_ && l.value_width == max_value_width_));
      max_key_width_ = std::max(max_key_width_, l.key_width);
      max_value_width_ = std::max(max_value_width_, l.value_width);
    }
    LayerGeometry like_first = l;
    like_first.window = layers_.front().window;
    like_first.chunked = layers_.front().chunked;
    uniform_ = uniform_ && like_first == layers_.front();
  }
}

HeadGeometry HeadGeometry::uniform(int layers, int kv_heads, int key_width, int value_width, CacheType type,
                                   int group) {
  return HeadGeometry(std::vector<LayerGeometry>(static_cast<std::size_t>(layers), {.kv_heads = kv_heads,
                                                                                    .query_heads = kv_heads * group,
                                                                                    .key_width = key_width,
                                                                                    .value_width = value_width,
                                                                                    .key_type = type,
                                                                                    .value_type = type}));
}

std::int32_t HeadGeometry::min_window() const {
  return layers_.empty() ? INT32_MAX : std::ranges::min(layers_, {}, &LayerGeometry::window).window;
}

int HeadGeometry::windowed_layers() const {
  return static_cast<int>(std::ranges::count_if(layers_, [](const LayerGeometry& l) { return l.window != INT32_MAX; }));
}

HeadGeometry HeadGeometry::with_types(CacheType key, CacheType value) const {
  HeadGeometry out = *this;
  for (LayerGeometry& l : out.layers_) l.key_type = key, l.value_type = value;
  return out;
}

HeadGeometry HeadGeometry::with_windows(std::span<const std::int32_t> windows, bool chunked) const {
  assert(windows.size() == layers_.size());
  HeadGeometry out = *this;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    out.layers_[i].window = windows[i];
    out.layers_[i].chunked = chunked && windows[i] != INT32_MAX;
  }
  return out;
}

}  // namespace palimpsest
