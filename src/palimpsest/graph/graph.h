// The decoder's graph of one step: embeddings in, logits out. One graph for all families; Family and the tensors
// present select its parts.
#pragma once

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "palimpsest/graph/attention_path.h"
#include "palimpsest/graph/backends.h"
#include "palimpsest/graph/pool_graph.h"
#include "palimpsest/graph/product_op.h"
#include "palimpsest/graph/sequence_step.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

struct FreeSchedule {
  void operator()(ggml_backend_sched_t schedule) const;
};

// The scheduler of graphs that run once or twice, a prompt's chunks: each is planned in the memory of the one before.
struct ChunkSchedule {
  std::unique_ptr<ggml_backend_sched, FreeSchedule> schedule;
  std::size_t nodes = 0;      // that it has room for
  std::uint64_t planned = 0;  // graphs so far: only the last one can run again
};

struct DecoderGraph {
  int tokens = 0, rows = 0;
  bool rows_alone = false;  // each row of a product has the bits of a product of one row (drafts)
  StepResult result = StepResult::kLogits;
  LayerRange layers;
  std::uint64_t path_shape = 0;  // AttentionPath::begin
  ggml_context_ptr context;      // holds tensor metadata, no data
  ggml_cgraph* graph = nullptr;
  // On the CPU alone: the generation of the GraphMemory buffer that the tensors are in.
  std::uint64_t placed = 0;
  ggml_backend_buffer_t buffer = nullptr;
  // With other devices: the scheduler that planned it. Operators that a device lacks run on the CPU. A decode step's is
  // its own: planned once, run many times. Its parts keep their uids, so that a device can recognise them (CUDA graphs;
  // RPC servers, which are sent the graph once).
  ggml_backend_sched_t schedule = nullptr;
  std::unique_ptr<ggml_backend_sched, FreeSchedule> own_schedule;
  std::uint64_t chunk = 0;                                   // ChunkSchedule::planned, if it is that one's
  std::uint64_t freed_before = 0;                            // freed_buffers() when it was planned
  std::vector<std::pair<ggml_tensor*, int>> first_of_layer;  // the first operator of each layer
  ggml_tensor* embeddings = nullptr;                         // in [width, tokens]: token embeddings, or hidden states
  ggml_tensor* per_layer_inputs = nullptr;   // in [layers * per_layer, tokens]: layers' embeddings; nullptr: none
  ggml_tensor* query_temperature = nullptr;  // in [1, 1, tokens]: factors of queries; nullptr: none
  ggml_tensor* row_ids = nullptr;            // in [at least rows]; nullptr: all tokens
  ggml_tensor* logits = nullptr;             // out [vocabulary, rows], or hidden states [width, rows]
  std::unique_ptr<PathInputs> path_inputs;
  std::unique_ptr<ProductOps> products;
  std::unique_ptr<PoolGraph> on_pool;  // nullptr: it runs on ggml's threads
};

// Memory for the tensors of a decoder's graphs, which run one at a time: its size is that of the largest graph. With
// devices: of chunks. (Schedulers of other graphs have memory of their own.)
class GraphMemory {
 public:
  explicit GraphMemory(ggml_backend_t backend) : backend_(backend) {}

  // Assigns addresses to the graph's tensors, unless they still have valid ones. false: out of memory.
  bool place(DecoderGraph& graph);
  std::size_t bytes() const { return allocator_ ? ggml_gallocr_get_buffer_size(allocator_.get(), 0) : 0; }
  ChunkSchedule& chunks() { return chunks_; }
  const ChunkSchedule& chunks() const { return chunks_; }

 private:
  void release();

  ggml_backend_t backend_;
  ggml_gallocr_ptr allocator_;
  ChunkSchedule chunks_;
  std::uint64_t moved_ = 1;  // generation of the buffer: addresses in earlier ones are invalid
};

// Builds and places the graph. Throws Error when a device is out of memory.
void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, const Backends& backends,
                 GraphMemory& memory);
// Call before each run: another graph may have replaced the buffer by a larger one.
void place_graph(DecoderGraph& graph, const Backends& backends, GraphMemory& memory);  // throws Error
void run_graph(DecoderGraph& graph, Backends& backends);                               // throws Error
// Whether it may run again: an RPC server may have forgotten it, or another chunk may have its memory.
bool is_known(const DecoderGraph& graph, const Backends& backends, const GraphMemory& memory);
std::size_t memory_of(ggml_backend_sched_t schedule, const Backends& backends);  // nullptr: 0

}  // namespace palimpsest
