#include "palimpsest/engine/mechanism/query_statistics.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

constexpr float kMaxCounted = 1 << 24;  // exact in f32

// The tag of a position in a ring of references: exact in f32, and not 0.
float tag_of(Position position) {
  return static_cast<float>(position % (Position{1} << 24) + 1);
}

// The row of a position in a ring.
std::size_t row_of(std::span<const float> ring, int head_dim, Position position) {
  const std::size_t width = at(head_dim) + 1;
  return static_cast<std::size_t>(position) % (ring.size() / width) * width;
}

}  // namespace

void rotate_row(float* row, std::size_t stride, RopeKind kind, std::span<const float> cos_sin) {
  const std::size_t pairs = cos_sin.size() / 2;
  const bool halves = kind == RopeKind::kHalves;
  for (std::size_t i = 0; i < pairs; ++i) {
    float &a = row[(halves ? i : 2 * i) * stride], &b = row[(halves ? i + pairs : 2 * i + 1) * stride];
    const float c = cos_sin[i], s = cos_sin[pairs + i], rotated = a * c - b * s;
    b = a * s + b * c;
    a = rotated;
  }
}

std::span<float> query_statistics(Cache& cache, int head) {
  const LayerGeometry& g = cache.geometry().layer_geometry(head);
  return cache.head_statistics(head).first(at(g.group() * query_floats(g.key_width)));
}

// Welford's update: no sum grows with the number of queries.
void add_queries(Rows queries, Position first, std::span<float> statistics) {
  const auto dim = static_cast<std::size_t>(queries.width);
  assert(statistics.size() == static_cast<std::size_t>(query_floats(queries.width)));
  float& count = statistics[0];
  float *const mean = &statistics[1], *const covariance = mean + dim;
  thread_local std::vector<float> difference;
  difference.resize(dim);
  for (int i = 0; i < queries.count; ++i) {
    if (first + i < ExpectedQueries::kLeftOut) continue;
    count = std::min(count + 1, kMaxCounted);
    const float share = 1 / count;
    for (std::size_t d = 0; d < dim; ++d) {
      difference[d] = queries[i][d] - mean[d];
      mean[d] += share * difference[d];
    }
    // covariance += (old difference x new difference - covariance) / count; the new difference is (1 - 1 / count) times
    // the old one.
    for (std::size_t r = 0; r < dim; ++r) {
      const float factor = (1 - share) * difference[r];
      float* const row = covariance + r * dim;
      for (std::size_t d = 0; d < dim; ++d) row[d] += share * (factor * difference[d] - row[d]);
    }
  }
}

std::span<float> reference_queries(Cache& cache, int head, const ReferenceQueries& of) {
  const LayerGeometry& g = cache.geometry().layer_geometry(head);
  return cache.head_statistics(head).last(at(g.group()) * of.floats(g.key_width));
}

void keep_references(Rows queries, Position first, std::span<float> ring) {
  const int rows = static_cast<int>(ring.size() / (at(queries.width) + 1));
  for (int i = std::max(0, queries.count - rows); i < queries.count; ++i) {
    const auto row = ring.subspan(row_of(ring, queries.width, first + i), at(queries.width) + 1);
    row[0] = tag_of(first + i);
    std::ranges::copy(queries[i], row.begin() + 1);
  }
}

std::span<const float> reference_at(std::span<const float> ring, int head_dim, Position position) {
  const auto row = ring.subspan(row_of(ring, head_dim, position), at(head_dim) + 1);
  return row[0] == tag_of(position) ? row.subspan(1) : std::span<const float>();
}

std::vector<float> mean_rotation(const RopeFrequencies& frequencies, Position next) {
  std::vector<float> row(2 * static_cast<std::size_t>(frequencies.pairs()));
  std::vector<double> sum(row.size(), 0);
  if (row.empty()) return row;
  for (Position ahead = 0; ahead < ExpectedQueries::kAhead; ++ahead) {
    frequencies.row(next + ahead, row.data());
    for (std::size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
  }
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(sum[i] / ExpectedQueries::kAhead);
  return row;
}

ExpectedQueries expected_queries(std::span<const float> statistics, int heads, int head_dim, float scale, RopeKind kind,
                                 std::span<const float> cos_sin, std::vector<float>& memory) {
  const auto dim = static_cast<std::size_t>(head_dim), count = static_cast<std::size_t>(heads);
  assert(statistics.size() == count * static_cast<std::size_t>(query_floats(head_dim)));
  memory.resize(count * (dim + dim * dim));
  float *const means = memory.data(), *const covariances = means + count * dim;
  for (std::size_t h = 0; h < count; ++h) {
    const float* const from = statistics.data() + h * (1 + dim + dim * dim) + 1;
    float *const mean = means + h * dim, *const covariance = covariances + h * dim * dim;
    std::copy_n(from, dim, mean);
    std::copy_n(from + dim, dim * dim, covariance);
    rotate_row(mean, 1, kind, cos_sin);
    for (std::size_t d = 0; d < dim; ++d) rotate_row(covariance + d * dim, 1, kind, cos_sin);  // C R'
    for (std::size_t d = 0; d < dim; ++d) rotate_row(covariance + d, dim, kind, cos_sin);      // R C R'
  }
  return {.mean = {means, heads, head_dim, head_dim},
          .covariance = {covariances, heads * head_dim, head_dim, head_dim},
          .scale = scale};
}

}  // namespace palimpsest
