#include "palimpsest/graph/step_threads.h"

#include <ggml.h>

#include <algorithm>

#include "palimpsest/core/cpu_count.h"

namespace palimpsest {
namespace {

constexpr std::size_t kOneThreadBytes = 8U << 20;

}  // namespace

StepThreads default_threads(const Hyperparameters& hyper) {
  const int cores = std::min(usable_cpus(), GGML_MAX_N_THREADS);
  StepThreads threads(hyper.weight_bytes <= kOneThreadBytes ? 1 : cores, cores);
  threads.fewer = true;
  return threads;
}

}  // namespace palimpsest
