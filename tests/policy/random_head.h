// One KV head's tokens with random keys, values and attention weights, and the policies' view of them.
#pragma once

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "palimpsest/policy/policy.h"

namespace palimpsest::testing {

using Matrix = std::vector<std::vector<double>>;

// Keys of a head have a common direction and some are repeated; the weights of each query sum to one.
struct RandomHead {
  RandomHead(int tokens, int dim, int value_dim, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::exponential_distribution<double> weight(1);
    std::vector<double> common(static_cast<std::size_t>(dim));
    for (double& x : common) x = normal(random);
    double sum = 0;
    for (int t = 0; t < tokens; ++t) {
      std::vector<double> key, value;
      const double size = std::exp(0.3 * normal(random));
      for (int d = 0; d < dim; ++d)
        key.push_back(static_cast<float>(size * (common[static_cast<std::size_t>(d)] + normal(random))));
      for (int d = 0; d < value_dim; ++d) value.push_back(static_cast<float>(size * normal(random)));
      k.push_back(key);
      v.push_back(value);
      w.push_back(weight(random));
      sum += w.back();
    }
    for (double& x : w) x = static_cast<float>(x / sum);
    for (const auto& row : k) keys.insert(keys.end(), row.begin(), row.end());
    for (const auto& row : v) values.insert(values.end(), row.begin(), row.end());
    attention.assign(w.begin(), w.end());
    position.resize(static_cast<std::size_t>(tokens));
    std::iota(position.begin(), position.end(), Position{0});
  }
  HeadView view() const {
    const int count = static_cast<int>(k.size());
    const int width = static_cast<int>(k[0].size()), value_width = static_cast<int>(v[0].size());
    return {.position = position,
            .attention = attention,
            .keys = {keys.data(), count, width, width},
            .values = {values.data(), count, value_width, value_width},
            .inserted = 1};
  }

  Matrix k, v;            // [tokens][dim]
  std::vector<double> w;  // [tokens] attention
  std::vector<float> keys, values, attention;
  std::vector<Position> position;
};

}  // namespace palimpsest::testing
