// The memory of a graph's results, and running it.
#include "palimpsest/core/error.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

bool GraphMemory::place(DecoderGraph& g) {
  if (g.placed == moved_) return true;
  if (g.buffer != nullptr)  // addresses in a buffer that was freed
    for (ggml_tensor* t = ggml_get_first_tensor(g.context.get()); t != nullptr;
         t = ggml_get_next_tensor(g.context.get(), t))
      if (t->buffer == g.buffer) t->buffer = nullptr, t->data = nullptr;
  g.buffer = nullptr;
  // Use a new allocator for a larger buffer: one that fails to grow keeps the address of its freed buffer.
  std::size_t wanted = 0;
  if (allocator_) ggml_gallocr_reserve_n_size(allocator_.get(), g.graph, nullptr, nullptr, &wanted);
  if (!allocator_ || wanted > bytes()) {
    ++moved_;
    allocator_.reset();
    allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_)));
  }
  try {
    if (allocator_ && ggml_gallocr_reserve(allocator_.get(), g.graph) &&
        ggml_gallocr_alloc_graph(allocator_.get(), g.graph)) {
      g.placed = moved_;
      g.buffer = g.embeddings->buffer;
      return true;
    }
  } catch (...) {  // ggml's buffer allocation may throw
    release();
    throw;
  }
  release();
  return false;
}

void GraphMemory::release() {
  ++moved_;
  allocator_.reset();
}

void FreeSchedule::operator()(ggml_backend_sched_t schedule) const {
  count_freed_buffer();
  ggml_backend_sched_free(schedule);
}

bool is_known(const DecoderGraph& graph, const Backends& backends, const GraphMemory& memory) {
  if (graph.chunk != 0 && graph.chunk != memory.chunks().planned) return false;
  return !backends.remote() || graph.freed_before == freed_buffers();
}

void run_graph(DecoderGraph& graph, Backends& backends) {
  backends.begin_step(graph.tokens, graph.on_pool != nullptr);
  const ggml_status status = graph.on_pool != nullptr
                                 ? graph.on_pool->run(backends.host(), backends.pool(), backends.slices())
                             : graph.schedule != nullptr ? ggml_backend_sched_graph_compute(graph.schedule, graph.graph)
                                                         : ggml_backend_graph_compute(backends.host(), graph.graph);
  backends.end_step();
  if (status != GGML_STATUS_SUCCESS)
    fail("device {} failed in a step of {} tokens ({})", backends.names(), graph.tokens, ggml_status_to_string(status));
}

std::size_t memory_of(ggml_backend_sched_t schedule, const Backends& backends) {
  std::size_t bytes = 0;
  for (ggml_backend_t backend : backends.all())
    if (schedule != nullptr) bytes += ggml_backend_sched_get_buffer_size(schedule, backend);
  return bytes;
}

}  // namespace palimpsest
