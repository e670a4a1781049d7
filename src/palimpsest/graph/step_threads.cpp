#include "palimpsest/graph/step_threads.h"

#include <ggml.h>

#include <thread>

namespace palimpsest {
namespace {

constexpr std::size_t kOneThreadBytes = 8U << 20;

}  // namespace

StepThreads default_threads(const Hyperparameters& hyper) {
  const int cores = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, unsigned{GGML_MAX_N_THREADS}));
  StepThreads threads(hyper.weight_bytes <= kOneThreadBytes ? 1 : cores, cores);
  threads.fewer = true;
  return threads;
}

}  // namespace palimpsest
