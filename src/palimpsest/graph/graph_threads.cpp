#include "palimpsest/graph/graph_threads.h"

#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/model/backend.h"

namespace palimpsest {

GraphThreads::GraphThreads(int threads)
    : threads_(threads),
      backend_(make_backend(find_device("cpu"), threads)),
      context_(ggml_init({2 * ggml_tensor_overhead() + ggml_graph_overhead_custom(1, false), nullptr, false})) {
  if (!context_) fail("no memory for {} threads", threads);
  graph_ = ggml_new_graph_custom(context_.get(), 1, false);
  const auto work = [](ggml_tensor*, int, int, void* self) { static_cast<GraphThreads*>(self)->take_indices(); };
  ggml_build_forward_expand(
      graph_, ggml_custom_4d(context_.get(), GGML_TYPE_I8, 1, 1, 1, 1, nullptr, 0, work, GGML_N_TASKS_MAX, this));
}

void GraphThreads::take_indices() noexcept {
  try {
    for (int index; (index = next_.fetch_add(1, std::memory_order_relaxed)) < count_;) loop_.call(loop_.body, index);
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    if (!failed_.exchange(true)) failure_ = std::current_exception();
  }
}

void GraphThreads::run_loop(int count, const Loop& loop) {
  if (threads_ == 1 || count <= 1) {
    for (int i = 0; i < count; ++i) loop.call(loop.body, i);
    return;
  }
  loop_ = loop;
  count_ = count;
  next_ = 0;
  if (ggml_backend_graph_compute(backend_.get(), graph_) != GGML_STATUS_SUCCESS) take_indices();
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace palimpsest
