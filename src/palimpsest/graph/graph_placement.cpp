// Builds graphs, and places their tensors in memory or plans them for devices.
#include "palimpsest/graph/graph.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/graph/graph_builder.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

namespace {

constexpr std::size_t kNodesPerLayer = 128 + 16 * ProductOps::kNodes,
                      kNodesBeside = 64;  // excluding those of the path and of experts

// A custom operator is a function of this process; a device that runs elsewhere would claim to support it.
bool has_custom(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) switch (ggml_graph_node(graph, i)->op) {
      case GGML_OP_CUSTOM:
      case GGML_OP_MAP_CUSTOM1:
      case GGML_OP_MAP_CUSTOM2:
      case GGML_OP_MAP_CUSTOM3:
        return true;
      default:
        break;
    }
  return false;
}

// In a layer, to add the results of the experts of a token.
std::size_t nodes_of_experts(const Hyperparameters& h) {
  return static_cast<std::size_t>(h.experts_used) * (h.adjugate_group > 0 ? 4 : 2);
}

[[noreturn]] void fail_memory(const DecoderGraph& graph, const Backends& backends) {
  fail("no memory on device {} for a step of {} tokens; use a smaller --prefill-chunk", backends.names(), graph.tokens);
}

}  // namespace

void place_graph(DecoderGraph& graph, const Backends& backends, GraphMemory& memory) {
  if (!graph.schedule && !memory.place(graph)) fail_memory(graph, backends);
}

void build_graph(DecoderGraph& graph, const Model& model, AttentionPath& path, const Backends& backends,
                 GraphMemory& memory) {
  graph.layers.last = std::min(graph.layers.last, model.hyper().layers);
  const std::size_t nodes = kNodesBeside + (kNodesPerLayer + nodes_of_experts(model.hyper()) + path.nodes_per_layer()) *
                                               static_cast<std::size_t>(graph.layers.last - graph.layers.first);
  graph.context.reset(
      ggml_init({2 * nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(nodes, false), nullptr, true}));
  if (!graph.context) fail("no memory for a graph of {} nodes", nodes);
  graph.graph = ggml_new_graph_custom(graph.context.get(), nodes, false);
  GraphBuilder(graph, model, path, backends.pool()).run();
  if (!backends.scheduled()) {
    if (PoolGraph::suits(graph.graph)) graph.on_pool = std::make_unique<PoolGraph>(graph.graph);
    return place_graph(graph, backends, memory);
  }

  if (backends.remote() && has_custom(graph.graph)) fail("custom operators cannot run on an RPC server");
  const bool chunk = graph.rows < graph.tokens;
  ChunkSchedule& chunks = memory.chunks();
  auto& schedule = chunk ? chunks.schedule : graph.own_schedule;
  if (!chunk || chunks.nodes < nodes) {
    std::vector<ggml_backend_t> all(backends.all().begin(), backends.all().end());
    schedule.reset();
    schedule.reset(ggml_backend_sched_new(all.data(), nullptr, static_cast<int>(all.size()), 2 * nodes, false, false));
    if (!schedule) fail_memory(graph, backends);
  }
  graph.schedule = schedule.get();
  if (chunk) {
    chunks.nodes = std::max(chunks.nodes, nodes);
    graph.chunk = ++chunks.planned;
    ggml_backend_sched_reset(graph.schedule);
  }
  // ggml gives an operator without weights to the device of the one before: then two tensors would go to a layer on
  // another device.
  for (const auto& [first, layer] : graph.first_of_layer)
    if (ggml_backend_supports_op(backends.of_layer(layer), first))
      ggml_backend_sched_set_tensor_backend(graph.schedule, first, backends.of_layer(layer));
  const std::size_t before = memory_of(graph.schedule, backends);
  const bool placed = ggml_backend_sched_alloc_graph(graph.schedule, graph.graph);
  if (before > 0 && memory_of(graph.schedule, backends) != before) count_freed_buffer();
  if (!placed) {
    if (chunk) chunks.schedule.reset(), chunks.nodes = 0;  // it may have the address of freed memory
    fail_memory(graph, backends);
  }
  graph.freed_before = freed_buffers();
}

}  // namespace palimpsest
