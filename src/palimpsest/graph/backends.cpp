#include "palimpsest/graph/backends.h"

#include <algorithm>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

Backends::Backends(const Model& model, StepThreads threads) : threads_(threads), used_threads_(threads.decode) {
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

void Backends::use_threads(int tokens) {
  if (const int threads = threads_.of(tokens); threads != used_threads_)
    set_threads(host(), used_threads_ = threads);
}

}  // namespace palimpsest
