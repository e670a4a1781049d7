#include "palimpsest/graph/backends.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {
namespace {

// How often the system took a core from a thread of this program.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

}  // namespace

Backends::Backends(const Model& model, StepThreads threads)
    : choice_(threads, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))), used_threads_(threads.decode) {
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

void Backends::begin_step(int tokens) {
  adapts_ = choice_.adapts(tokens);
  const int threads = choice_.begin(tokens, adapts_ ? running_threads() : 0);
  if (threads != used_threads_) set_threads(host(), used_threads_ = threads);
  if (adapts_) preempted_ = preemptions();
}

void Backends::end_step() {
  if (adapts_) choice_.end(preemptions() > preempted_);
}

}  // namespace palimpsest
