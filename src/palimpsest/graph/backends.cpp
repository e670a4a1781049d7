#include "palimpsest/graph/backends.h"

#include <sys/resource.h>

#include <algorithm>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {
namespace {

constexpr int kSlicesPerThread = 2;

// How often the system took a core from a thread of this program.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

Backends::Backends(const Model& model, StepThreads threads)
    : choice_(threads),
      pool_(std::make_shared<ThreadPool>(threads.max())),
      slices_(std::make_unique<SliceMemory>(threads.max() == 1 ? 0 : kSlicesPerThread * threads.max())),
      used_threads_(threads.decode),
      host_threads_(threads.decode) {
  const Weights& w = model.weights();
  ggml_backend_dev_t host = nullptr;
  for (ggml_backend_dev_t device : w.devices) {
    remote_ = remote_ || is_rpc(device);
    names_ += (names_.empty() ? "" : ",") + name_of(device);
    if (is_cpu(device)) {
      host = device;
    } else {
      owned_.push_back(make_backend(device, threads.batch));
    }
  }
  owned_.push_back(make_backend(host != nullptr ? host : find_device("cpu"), used_threads_));
  if (remote_) keep_rpc_connections_alive();
  for (const ggml_backend_ptr& each : owned_) all_.push_back(each.get());
  for (const int device : w.device_of) {
    ggml_backend_dev_t const wanted = w.devices[static_cast<std::size_t>(device)];
    const auto found = std::ranges::find(all_, wanted, ggml_backend_get_device);
    of_layer_.push_back(static_cast<std::size_t>(found - all_.begin()));
  }
}

void Backends::begin_step(int tokens, bool on_pool) {
  used_threads_ = choice_.begin(tokens);
  pool_->use(used_threads_);
  const int on_host = on_pool ? 1 : used_threads_;
  if (on_host != host_threads_) set_threads(host(), host_threads_ = on_host);
  adapts_ = choice_.adapts(tokens);
  if (!adapts_) return;
  preempted_ = preemptions();
  start_ = std::chrono::steady_clock::now();
}

void Backends::end_step() {
  if (!adapts_) return;
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start_;
  choice_.end(taken.count(), preemptions() > preempted_);
}

}  // namespace palimpsest
