#include "palimpsest/eval/head_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace palimpsest {

std::string model_line(std::uint64_t fingerprint) {
  return fmt::format("model {:016x}\n", fingerprint);
}

std::string profile_text(const HeadGeometry& geometry, std::uint64_t fingerprint, const std::string& comment,
                         std::span<const double> shares) {
  std::string out = fmt::format("# {}\n{}# layer  head  share\n", comment, model_line(fingerprint));
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const int head = static_cast<int>(i);
    out += fmt::format("  {:5}  {:4}  {:.3f}x\n", geometry.layer_of(head), geometry.kv_head_of(head), shares[i]);
  }
  return out;
}

std::vector<std::size_t> streaming_heads(std::span<const double> far, double part) {
  std::vector<std::size_t> order(far.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t head) { return far[head]; });
  order.resize(static_cast<std::size_t>(part * static_cast<double>(order.size())));
  std::ranges::sort(order);
  return order;
}

std::string streaming_text(const HeadGeometry& geometry, std::uint64_t fingerprint, const std::string& comment,
                           const std::string& measured, std::span<const double> far,
                           std::span<const std::size_t> streaming) {
  std::string out = fmt::format("# {}\n{}# layer  head             {}\n", comment, model_line(fingerprint), measured);
  for (std::size_t i = 0; i < far.size(); ++i) {
    const int head = static_cast<int>(i);
    const bool is = std::ranges::binary_search(streaming, i);
    out += fmt::format("{}{:5}  {:4}  {:9}  # {:.4f}\n", is ? "  " : "# ", geometry.layer_of(head),
                       geometry.kv_head_of(head), is ? "streaming" : "", far[i]);
  }
  return out;
}

}  // namespace palimpsest
