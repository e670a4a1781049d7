// Prometheus metrics, named after vLLM's, with its names as aliases.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {

class Histogram {  // of seconds; thread-safe
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double seconds);
  std::string samples(const std::string& name, const std::string& labels) const;  // Prometheus' lines

 private:
  std::vector<double> bounds_;  // upper, inclusive
  std::vector<std::atomic<std::uint64_t>> counts_;
  std::atomic<double> sum_ = 0;
};

struct Metrics {
  Histogram time_to_first_token{
      {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640}};
  Histogram time_per_output_token{
      {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10}};
  std::atomic<std::uint64_t> rejected = 0;  // with 429

  // Prometheus' text format 0.0.4.
  std::string text(const SchedulerLoad& load, const std::string& model_name) const;
};

}  // namespace palimpsest
