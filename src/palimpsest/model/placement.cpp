#include "palimpsest/model/placement.h"

#include <cassert>
#include <numeric>

namespace palimpsest {

std::vector<int> place_layers(std::span<const std::size_t> bytes, std::span<const double> shares) {
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto total = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
  assert(all > 0);
  int last = static_cast<int>(shares.size()) - 1;  // that has a share
  while (last > 0 && shares[static_cast<std::size_t>(last)] == 0) --last;
  std::vector<int> out;
  double before = 0, end = shares[0];
  int device = 0;
  for (const std::size_t part : bytes) {
    const double middle = (before + static_cast<double>(part) / 2) * all / (total > 0 ? total : 1);
    while (device < last && middle >= end) end += shares[static_cast<std::size_t>(++device)];
    out.push_back(device);
    before += static_cast<double>(part);
  }
  return out;
}

}  // namespace palimpsest
