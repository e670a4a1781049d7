// Base of policies that pool the attention of the last queries: their options.
#pragma once

#include <string_view>
#include <vector>

#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {

class PooledWindow : public Policy {
 public:
  std::vector<std::string_view> option_names() const override { return {"window", "pooling", "kernel"}; }
  void configure(const PolicyOptions& options) override {
    if (options.window > 0) window_ = options.window;
    if (options.kernel > 0) kernel_ = options.kernel;
    if (options.pooling != PolicyOptions::Pooling::kAuto) pooling_ = options.pooling;
  }

 protected:
  explicit PooledWindow(PolicyOptions::Pooling pooling) : pooling_(pooling) {}
  int window() const { return window_; }
  void pooled(std::span<const float> in, std::span<float> out) const { pool(pooling_, kernel_, in, out); }

 private:
  int window_ = 32, kernel_ = 7;
  PolicyOptions::Pooling pooling_;
};

}  // namespace palimpsest
