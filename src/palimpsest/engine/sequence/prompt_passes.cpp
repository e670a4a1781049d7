#include "palimpsest/engine/sequence/prompt_passes.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {

PromptPasses::PromptPasses(const HeadGeometry& geometry, int width, bool layerwise)
    : width_(static_cast<std::size_t>(width)), window_(Signals{}) {
  for (int layer = 0; layerwise && layer < geometry.layers(); ++layer) {
    if (geometry.layer(layer).kv_heads == 0) continue;
    if (!passes_.empty()) passes_.back().layers.last = layer;
    passes_.push_back({.layers = {.first = passes_.empty() ? 0 : layer},
                       .tables = {geometry.first_head(layer), geometry.first_head(layer + 1)}});
  }
  if (passes_.size() <= 1) passes_.assign(1, {});
}

void PromptPasses::begin(std::size_t tokens, const WindowParts& window) {
  assert(first());
  if (!several()) return;
  hidden_.resize(tokens * width_);
  window_ = window;
}

void PromptPasses::next() {
  assert(!last());
  ++pass_;
}

void PromptPasses::end() {
  pass_ = 0;
  std::vector<float>().swap(hidden_);
}

std::span<const float> PromptPasses::input(std::size_t first, std::size_t count) const {
  if (this->first()) return {};
  return std::span(hidden_).subspan(first * width_, count * width_);
}

void PromptPasses::keep(std::size_t first, std::span<const float> hidden) {
  std::ranges::copy(hidden, hidden_.begin() + static_cast<std::ptrdiff_t>(first * width_));
}

std::size_t PromptPasses::progress(std::size_t read, std::size_t tokens) const {
  return (pass_ * tokens + read) / passes_.size();
}

}  // namespace palimpsest
