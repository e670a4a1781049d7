// Mean queries of each query head of a model, un-rotated, from which policy `triattention` predicts future queries.
// A file beside the model contains them (policy/scorer_file.h); `palimpsest heads --centres` measures them
// (engine/sequence/query_centres.h). Weights of a KV head, for each member of the model's largest query group:
//   [mean: head_dim] [mean length of each rotated pair: head_dim / 2]
#pragma once

#include <span>

#include "palimpsest/policy/scorer_file.h"

namespace palimpsest {

// The elements of a row that are rotated together.
struct RotatedPairs {
  explicit RotatedPairs(const RopeOptions& rope)
      : halves(rope.kind == RopeKind::kHalves), count(rope.kind == RopeKind::kNone ? 0 : at(rope.dims) / 2) {}

  bool halves;
  std::size_t count;

  std::size_t real(std::size_t pair) const { return halves ? pair : 2 * pair; }
  std::size_t imaginary(std::size_t pair) const { return halves ? pair + count : 2 * pair + 1; }
};

struct QueryCentres {
  explicit QueryCentres(const PolicyModel& model) : group(model.group), head_dim(at(model.head_dim)) {}

  int group;
  std::size_t head_dim;

  std::size_t pairs() const { return head_dim / 2; }
  std::size_t floats() const { return at(group) * (head_dim + pairs()); }  // of a KV head
  ScorerFormat format() const {
    return {.policy = "triattention",
            .magic = "PLMPCENT",
            .extension = ".centres",
            .made_by = "make one with `palimpsest fit -m MODEL` or `palimpsest heads --centres`",
            .floats = floats()};
  }
  // The part of all KV heads' weights that belongs to a member of a KV head's group.
  template <typename T>
  std::span<T> mean(std::span<T> weights, int head, int member) const {
    return weights.subspan(first(head, member), head_dim);
  }
  template <typename T>
  std::span<T> lengths(std::span<T> weights, int head, int member) const {
    return weights.subspan(first(head, member) + head_dim, pairs());
  }

 private:
  std::size_t first(int head, int member) const { return at(head) * floats() + at(member) * (head_dim + pairs()); }
};

}  // namespace palimpsest
