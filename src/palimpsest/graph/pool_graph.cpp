#include "palimpsest/graph/pool_graph.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {
namespace {

constexpr std::int64_t kSliced = 32768;  // elements of an operator that is worth slicing
constexpr double kOwnProduct = 1 << 20;  // multiplications of a product of ggml that one thread does

// Operators whose slices along a dimension above the first depend only on the same slices of their sources, or on
// sources of size 1 there.
bool by_row(const ggml_tensor* t) {
  switch (t->op) {
    case GGML_OP_ADD:
    case GGML_OP_SUB:
    case GGML_OP_MUL:
    case GGML_OP_DIV:
    case GGML_OP_SCALE:
    case GGML_OP_SQR:
    case GGML_OP_SQRT:
    case GGML_OP_CLAMP:
    case GGML_OP_UNARY:
    case GGML_OP_GLU:
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
    case GGML_OP_L2_NORM:
    case GGML_OP_CONT:
    case GGML_OP_SUM_ROWS:
    case GGML_OP_MEAN:
      return true;
    case GGML_OP_SOFT_MAX:  // a mask has other dimensions
      return t->src[1] == nullptr;
    default:
      return false;
  }
}

// The dimension along which an operator is cut; 0: it is not.
int sliced_dim(const ggml_tensor* t) {
  if (!by_row(t) || ggml_nelements(t) < kSliced) return 0;
  int dim = GGML_MAX_DIMS - 1;
  while (dim > 0 && t->ne[dim] == 1) --dim;
  for (const ggml_tensor* source : t->src)
    if (source != nullptr && source->ne[dim] != t->ne[dim] && source->ne[dim] != 1) return 0;
  return dim;
}

bool is_view(const ggml_tensor* t) {
  return t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE ||
         t->op == GGML_OP_TRANSPOSE;
}

void cut(ggml_tensor& t, int dim, std::int64_t first, std::int64_t last) {
  t.data = static_cast<char*>(t.data) + static_cast<std::size_t>(first) * t.nb[dim];
  t.ne[dim] = last - first;
}

}  // namespace

struct SliceMemory::Slice {
  Slice() : backend(make_backend(find_device("cpu"), 1)) {
    const ggml_init_params params{(1 + GGML_MAX_SRC) * ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false),
                                  nullptr, true};
    context.reset(ggml_init(params));
    if (!context) fail("no memory for threads");
    graph = ggml_new_graph_custom(context.get(), 1, false);
    for (ggml_tensor*& t : tensors) t = ggml_new_tensor_1d(context.get(), GGML_TYPE_F32, 1);
    ggml_graph_add_node(graph, tensors[0]);
  }

  ggml_backend_ptr backend;
  ggml_context_ptr context;
  ggml_cgraph* graph = nullptr;
  ggml_tensor* tensors[1 + GGML_MAX_SRC] = {};  // the operator and its sources
};

SliceMemory::SliceMemory(int slices) : slices_(static_cast<std::size_t>(slices)) {}
SliceMemory::~SliceMemory() = default;

int SliceMemory::slices() const {
  return static_cast<int>(slices_.size());
}

bool SliceMemory::compute(int slice, const ggml_tensor& whole, int dim, std::int64_t first, std::int64_t last) {
  Slice& s = slices_[static_cast<std::size_t>(slice)];
  ggml_tensor& t = *s.tensors[0];
  t = whole;
  cut(t, dim, first, last);
  for (int i = 0; i < GGML_MAX_SRC; ++i) {
    if (whole.src[i] == nullptr) continue;
    t.src[i] = s.tensors[1 + i];
    *t.src[i] = *whole.src[i];
    if (whole.src[i]->ne[dim] == whole.ne[dim]) cut(*t.src[i], dim, first, last);
  }
  return ggml_backend_graph_compute(s.backend.get(), s.graph) == GGML_STATUS_SUCCESS;
}

bool PoolGraph::suits(ggml_cgraph* graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* const t = ggml_graph_node(graph, i);
    if (t->op == GGML_OP_MUL_MAT_ID || t->op == GGML_OP_FLASH_ATTN_EXT) return false;
    if (t->op == GGML_OP_MUL_MAT && static_cast<double>(ggml_nelements(t)) * t->src[0]->ne[0] > kOwnProduct)
      return false;
  }
  return true;
}

PoolGraph::PoolGraph(ggml_cgraph* graph) : whole_(graph) {
  const std::span<ggml_tensor*> nodes(ggml_graph_nodes(graph), static_cast<std::size_t>(ggml_graph_n_nodes(graph)));
  const auto sliced = std::ranges::count_if(nodes, [](const ggml_tensor* t) { return sliced_dim(t) > 0; });
  if (sliced == 0) return;
  // The runs of nodes between the sliced ones.
  std::vector<std::vector<ggml_tensor*>> runs(1);
  for (ggml_tensor* t : nodes) {
    if (is_view(t)) continue;
    const int dim = sliced_dim(t);
    if (dim == 0) {
      runs.back().push_back(t);
      continue;
    }
    if (!runs.back().empty()) items_.emplace_back(), runs.emplace_back();
    items_.push_back({nullptr, t, dim});
  }
  std::size_t bytes = 0;
  for (const auto& run : runs) bytes += ggml_graph_overhead_custom(run.size() + 1, false);
  context_.reset(ggml_init({bytes, nullptr, true}));
  if (!context_) fail("no memory for a graph of {} nodes", nodes.size());
  if (!runs.back().empty()) items_.emplace_back();
  auto run = runs.begin();
  for (Item& item : items_) {
    if (item.sliced != nullptr) continue;
    item.on_caller = ggml_new_graph_custom(context_.get(), run->size() + 1, false);
    for (ggml_tensor* t : *run++) ggml_graph_add_node(item.on_caller, t);
  }
}

ggml_status PoolGraph::run(ggml_backend_t caller, ThreadPool& pool, SliceMemory& memory) {
  if (items_.empty() || pool.threads() == 1) return ggml_backend_graph_compute(caller, whole_);
  std::atomic<bool> failed = false;
  for (const Item& item : items_) {
    if (item.on_caller != nullptr) {
      const ggml_status status = ggml_backend_graph_compute(caller, item.on_caller);
      if (status != GGML_STATUS_SUCCESS) return status;
      continue;
    }
    const std::int64_t all = item.sliced->ne[item.dim], parts = std::min<std::int64_t>(all, memory.slices());
    pool.run(static_cast<int>(parts), [&](int i) {
      if (!memory.compute(i, *item.sliced, item.dim, all * i / parts, all * (i + 1) / parts)) failed = true;
    });
  }
  return failed ? GGML_STATUS_FAILED : GGML_STATUS_SUCCESS;
}

}  // namespace palimpsest
