// The attention of a decoder's graph: one custom operator per layer over the pages of the cache (cpu/attention_op.h),
// or stock ggml operators on any device (device/portable.h).
#pragma once

#include <ggml.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "palimpsest/attention/misfit.h"
#include "palimpsest/cache/cache.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// A built graph: built once per step shape, run many times.
struct DecoderGraph;
class Step;  // graph/step.h

// Cache options with the model's geometry and defaults for the rest.
inline CacheOptions cache_shape(const Hyperparameters& hyper) {
  CacheOptions options;
  options.geometry = hyper.geometry;
  options.state_floats = hyper.state_floats();
  return options;
}

struct PathInputs {  // a path's data per graph
  virtual ~PathInputs() = default;
};

// The inputs of a scan (family.h, Recurrence), all f32; of x, b and c any stride between tokens.
struct ScanInputs {
  ggml_tensor* x;               // [head_dim, heads, tokens]
  ggml_tensor* time;            // [heads, tokens]: softplus is applied to it
  ggml_tensor* decay;           // [1, heads]
  ggml_tensor *b, *c;           // [state_width, groups, tokens]: k and q of the delta rule
  ggml_tensor* beta = nullptr;  // [heads, tokens], of the delta rule; nullptr: Mamba-2
};

class AttentionPath {
 public:
  virtual ~AttentionPath() = default;

  // The cache options that this path requires.
  virtual CacheOptions cache_options(const Hyperparameters& hyper) const { return cache_shape(hyper); }

  // Makes the storage of a cache without pages, before its first step. Throws Error.
  virtual void attach_storage(Cache& /*cache*/, const AttentionRule& /*rule*/) const {}

  // Called first in every step. Steps with equal numbers of tokens and logit rows and an equal return value share a
  // graph.
  virtual std::uint64_t begin(const Step& step) = 0;

  // Adds the attention of one layer that has KV heads: q [key_width, query_heads, tokens], k [key_width, kv_heads,
  // tokens] and v [value_width, kv_heads, tokens], all f32, un-rotated, each head's row contiguous, any stride between
  // tokens -> [value_width * query_heads, tokens].
  virtual ggml_tensor* build(DecoderGraph& graph, int layer, ggml_tensor* q, ggml_tensor* k, ggml_tensor* v) = 0;

  // Adds the causal convolution of a recurrent layer, each channel on its own: x [channels, tokens], rows contiguous,
  // any stride between tokens, and weight [taps, channels], both f32 -> [channels, tokens]. The last taps - 1 inputs of
  // each sequence are its state (LayerState).
  virtual ggml_tensor* convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) = 0;

  // Adds the scan of a layer whose heads have states -> [head_dim * heads, tokens]. Reads and writes the states
  // (LayerState). After the layer's convolve().
  virtual ggml_tensor* scan(DecoderGraph& graph, int layer, const ScanInputs& in) = 0;

  virtual std::size_t nodes_per_layer() const = 0;  // max that a layer's functions add

  // The graph is allocated and runs next: fills its inputs.
  virtual void prepare(DecoderGraph& graph, const Step& step) = 0;
  virtual void finish(DecoderGraph&, const Step&) {}  // the graph has run: reports weights to receivers
  // The first new key or value of a sequence that its cache type could not represent, in the last step.
  virtual std::optional<Misfit> misfit(int /*sequence*/) const { return std::nullopt; }
};

}  // namespace palimpsest
