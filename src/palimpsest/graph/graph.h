// The decoder's graph of one step: embeddings in, logits out. One graph for all families; Family and the tensors that
// are there choose among its parts.
#pragma once

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include <cstdint>
#include <memory>

#include "palimpsest/graph/attention_path.h"
#include "palimpsest/graph/product_op.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct DecoderGraph {
  int tokens = 0, rows = 0;
  LayerRange layers;
  std::uint64_t path_shape = 0;  // AttentionPath::begin
  ggml_context_ptr context;      // of the tensors' descriptions
  ggml_cgraph* graph = nullptr;
  std::uint64_t placed = 0;  // GraphMemory: the device runs every operator,
  ggml_backend_buffer_t buffer = nullptr;
  ggml_backend_ptr host;              // or the CPU runs those that it lacks,
  ggml_backend_sched_ptr schedule;    // as planned here
  ggml_tensor* embeddings = nullptr;  // in [width, tokens]: of the tokens, or hidden states
  ggml_tensor* row_ids = nullptr;     // in [at least rows]; nullptr: all tokens
  ggml_tensor* logits = nullptr;      // out [vocabulary, rows], or hidden states [width, tokens]
  std::unique_ptr<PathInputs> path_inputs;
  std::unique_ptr<ProductOps> products;
};

// Where the tensors of all graphs of a decoder lie, which run one at a time: as much memory as the largest needs.
class GraphMemory {
 public:
  explicit GraphMemory(ggml_backend_t backend) : backend_(backend) {}

  // Gives the graph's tensors their addresses; nothing is done as long as they have them. false: there is no memory.
  bool place(DecoderGraph& graph);
  std::size_t bytes() const { return allocator_ ? ggml_gallocr_get_buffer_size(allocator_.get(), 0) : 0; }

 private:
  void forget();

  ggml_backend_t backend_;
  ggml_gallocr_ptr allocator_;
  std::uint64_t moved_ = 1;  // counts new buffers: what was placed in an earlier one has no addresses any more
};

// Builds and places. Throws Error when the device's memory does not suffice.
void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, ggml_backend_t backend, int threads,
                 GraphMemory& memory);
// Before each run: another graph may have needed more memory since.
void place_graph(DecoderGraph& graph, ggml_backend_t backend, GraphMemory& memory);  // throws Error
void run_graph(DecoderGraph& graph, ggml_backend_t backend);                         // throws Error

}  // namespace palimpsest
