// How a decoder's graph gets its attention: one custom operator a layer over the pages of the cache
// (cpu/attention_op.h), or stock ggml operators on any device (device/portable.h).
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "palimpsest/attention/misfit.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// One built graph. Built once per shape of step, run many times.
struct DecoderGraph;
class Step;  // graph/cpu/step.h

// A cache's options with the model's shape; the rest is free.
inline CacheOptions cache_shape(const Hyperparameters& hyper) {
  CacheOptions options;
  options.geometry = hyper.geometry;
  return options;
}

struct PathInputs {  // what a path keeps with each graph
  virtual ~PathInputs() = default;
};

class AttentionPath {
 public:
  virtual ~AttentionPath() = default;

  // What a cache must look like for this path.
  virtual CacheOptions cache_options(const Hyperparameters& hyper) const { return cache_shape(hyper); }

  // Called first in every step. Steps with the same number of tokens, the same number of logit rows and the same
  // value here share a graph.
  virtual std::uint64_t begin(const Step& step) = 0;

  // Adds the attention of one layer that has KV heads: q [key_width, query_heads, tokens], k [key_width, kv_heads,
  // tokens] and v [value_width, kv_heads, tokens], all f32, un-rotated, each head's row contiguous, tokens at any
  // distance -> [value_width * query_heads, tokens].
  virtual ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) = 0;

  virtual std::size_t nodes_per_layer() const = 0;  // build() adds at most so many

  // The graph is allocated and will run now: fill its inputs.
  virtual void prepare(DecoderGraph& graph, const Step& step) = 0;
  virtual void finish(DecoderGraph&, const Step&) {}  // it ran: hand out the weights
  // The first new key or value of a sequence that its cache type could not hold, in the step that ran last.
  virtual std::optional<Misfit> misfit(int /*sequence*/) const { return std::nullopt; }
};

}  // namespace palimpsest
