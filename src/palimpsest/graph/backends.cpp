#include "palimpsest/graph/backends.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "palimpsest/model/backend.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {
namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// How often the system took a core from a thread of this program.
long preemptions() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

// More programs run than there are cores, beside this one.
bool is_crowded() {
  double load = 0;
  return getloadavg(&load, 1) == 1 && load > 1.5 * std::thread::hardware_concurrency();
}

}  // namespace

Backends::Backends(const Model& model, StepThreads threads)
    : choice_(threads, is_crowded()), used_threads_(threads.decode) {
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
  const int threads = choice_.begin(tokens);
  if (threads != used_threads_) set_threads(host(), used_threads_ = threads);
  preempted_ = preemptions();
  cpu_seconds_ = seconds_of(CLOCK_THREAD_CPUTIME_ID);
  wall_seconds_ = seconds_of(CLOCK_MONOTONIC);
}

void Backends::end_step() {
  const double wall = seconds_of(CLOCK_MONOTONIC) - wall_seconds_;  // within the other time: no step seems too long
  choice_.end(wall, seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu_seconds_, preemptions() > preempted_);
}

}  // namespace palimpsest
