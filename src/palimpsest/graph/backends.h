// The ggml backends that run a model's layers: one for each of its devices, and the CPU's for what they lack.
#pragma once

#include <ggml-cpp.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/thread_pool.h"
#include "palimpsest/graph/pool_graph.h"
#include "palimpsest/graph/thread_choice.h"
#include "palimpsest/model/model.h"

namespace palimpsest {

class Backends {
 public:
  Backends(const Model& model, StepThreads threads);

  std::span<const ggml_backend_t> all() const { return all_; }  // as ggml's scheduler wants them: the CPU's last
  ggml_backend_t host() const { return all_.back(); }
  // Whether graphs go through the scheduler: a device is not the CPU.
  bool scheduled() const { return all_.size() > 1; }
  bool remote() const { return remote_; }  // a device is an RPC server's
  // The index in all() of the backend of a layer, or of the output (layer == layers).
  std::size_t index_of(int layer) const { return of_layer_[static_cast<std::size_t>(layer)]; }
  ggml_backend_t of_layer(int layer) const { return all_[index_of(layer)]; }
  // Around a step of so many tokens: sets the host's threads for it (graph/thread_choice.h), the pool's or ggml's.
  void begin_step(int tokens, bool on_pool);
  void end_step();
  int threads() const { return used_threads_; }  // of the last step
  ThreadPool& pool() const { return *pool_; }
  const std::shared_ptr<ThreadPool>& shared_pool() const { return pool_; }
  SliceMemory& slices() const { return *slices_; }
  // Held by whoever uses a device: steps, and threads that save or load a sequence meanwhile.
  std::recursive_mutex& mutex() const { return mutex_; }
  const std::string& names() const { return names_; }  // of the devices, as in --device

 private:
  std::vector<ggml_backend_ptr> owned_;
  std::vector<ggml_backend_t> all_;
  std::vector<std::size_t> of_layer_;
  std::string names_;
  bool remote_ = false;
  ThreadChoice choice_;
  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<SliceMemory> slices_;
  int used_threads_, host_threads_;
  bool adapts_ = false;  // the threads of this step
  long preempted_ = 0;   // how often threads of this program were, at begin_step()
  std::chrono::steady_clock::time_point start_;
  mutable std::recursive_mutex mutex_;
};

}  // namespace palimpsest
