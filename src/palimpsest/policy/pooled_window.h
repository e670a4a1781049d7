// Base of policies that pool the attention of the last queries: their options.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/policy/policy.h"
#include "palimpsest/policy/pool.h"

namespace palimpsest {

class PooledWindow : public Policy {
 public:
  std::vector<PolicyOption> options() override {
    static constexpr std::array<std::string_view, 3> kPooling = {"avg", "max", "none"};
    PolicyOption kernel = count_option({"kernel", "TOKENS|auto", "neighbours pooled, odd; auto: 7"}, kernel_, 255);
    kernel.set = [this, parse = kernel.set](std::string_view value) {
      parse(value);
      if (kernel_ % 2 == 0)
        fail("kernel {0} is even: it has as many neighbours on both sides; use {1} or {2}", kernel_, kernel_ - 1,
             kernel_ + 1);
    };
    return {count_option({"window", "QUERIES|auto", "last queries; protect them; auto: 32"}, window_, 4096),
            choice_option({"pooling", "HOW", "avg, max or none; auto: the paper's"}, pooling_, kPooling), kernel};
  }

 protected:
  explicit PooledWindow(WindowPooling pooling) : pooling_(pooling) {}
  int window() const { return window_; }
  void pooled(std::span<const float> in, std::span<float> out) const { pool(pooling_, kernel_, in, out); }

 private:
  int window_ = 32, kernel_ = 7;
  WindowPooling pooling_;
};

}  // namespace palimpsest
