// The passes of a prompt through the model's layers.
//
//   whole       one pass: each chunk runs through all layers
//   layer by    a pass for each layer with KV heads, and for those without that follow it: all chunks run through the
//   layer       layer, whose cache is then compressed to the budget, before the next layer begins
//
//              chunk 0   chunk 1   chunk 2
//   layer 0       1         2         3       compress
//   layer 1       4         5         6       compress
//
// Between two passes there are the prompt's hidden states, [tokens][width]; each pass overwrites them in place.
// PagedEviction, algorithm 2.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/cache/change.h"
#include "palimpsest/cache/geometry.h"
#include "palimpsest/evict/attention_window.h"
#include "palimpsest/graph/sequence_step.h"

namespace palimpsest {

class PromptPasses {
 public:
  // Layerwise: each head has a slot table of its own.
  PromptPasses(const HeadGeometry& geometry, int width, bool layerwise);

  // The first pass of a prompt. `window`: the policy's, as the prompt found it. Throws std::bad_alloc, unchanged.
  void begin(std::size_t tokens, const WindowParts& window);
  void next();  // after a pass that is not the last
  void end();   // of the prompt; frees the hidden states

  bool several() const { return passes_.size() > 1; }
  bool first() const { return pass_ == 0; }
  bool last() const { return pass_ + 1 == passes_.size(); }
  LayerRange layers() const { return passes_[pass_].layers; }
  TableRange tables() const { return passes_[pass_].tables; }  // of these layers
  const WindowParts& window() const { return window_; }
  // What this pass reads and writes of `count` tokens; in the first pass it reads nothing.
  std::span<const float> input(std::size_t first, std::size_t count) const;
  void keep(std::size_t first, std::span<const float> hidden);
  // The share of the work that is done when this pass has read `read` of `tokens`, in tokens.
  std::size_t progress(std::size_t read, std::size_t tokens) const;

 private:
  struct Pass {
    LayerRange layers;
    TableRange tables;
  };
  std::vector<Pass> passes_;
  std::size_t width_, pass_ = 0;
  std::vector<float> hidden_;
  WindowParts window_;
};

}  // namespace palimpsest
