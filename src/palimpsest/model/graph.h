// The decoder's graph of one step: embeddings in, logits out. One graph for all families; Family and the tensors that
// are there choose among its parts.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "palimpsest/model/attention_path.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct DecoderGraph {
  int tokens = 0, rows = 0;
  std::uint64_t path_shape = 0;  // AttentionPath::begin
  ggml_context_ptr context;      // of the tensors' descriptions
  ggml_cgraph* graph = nullptr;
  ggml_gallocr_ptr memory;
  ggml_tensor* embeddings = nullptr;           // in [width, tokens]
  ggml_tensor* row_ids = nullptr;              // in [rows]; nullptr: all tokens
  ggml_tensor* logits = nullptr;               // out [vocabulary, rows]
  std::vector<ggml_tensor*> attention_inputs;  // the path's own
};

// Builds and allocates. Throws Error when the device's memory does not suffice.
void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path);

}  // namespace palimpsest
