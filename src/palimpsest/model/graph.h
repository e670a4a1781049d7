// The decoder's graph of one step: embeddings in, logits out. One graph for all families; Family and the tensors that
// are there choose among its parts.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>

#include "palimpsest/graph/cpu/product_op.h"
#include "palimpsest/model/attention_path.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct DecoderGraph {
  int tokens = 0, rows = 0;
  std::uint64_t path_shape = 0;  // AttentionPath::begin
  ggml_context_ptr context;      // of the tensors' descriptions
  ggml_cgraph* graph = nullptr;
  ggml_gallocr_ptr memory;            // the device runs every operator,
  ggml_backend_ptr host;              // or the CPU runs those that it lacks,
  ggml_backend_sched_ptr schedule;    // as planned here
  ggml_tensor* embeddings = nullptr;  // in [width, tokens]
  ggml_tensor* row_ids = nullptr;     // in [at least rows]; nullptr: all tokens
  ggml_tensor* logits = nullptr;      // out [vocabulary, rows]
  std::unique_ptr<PathInputs> path_inputs;
  std::unique_ptr<ProductOps> products;
};

// Builds and allocates. Throws Error when the device's memory does not suffice.
void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, ggml_backend_t backend, int threads);
void run_graph(DecoderGraph& graph, ggml_backend_t backend);  // throws Error

}  // namespace palimpsest
