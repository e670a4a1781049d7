// Measures the mean queries of a model's heads on a text, once per model, for policy `triattention`
// (policy/query_centres.h).
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "palimpsest/graph/decoder.h"
#include "palimpsest/policy/query_centres.h"

namespace palimpsest {

// Sums over the queries of a text, of each query head. Heads may report concurrently: each has its own.
class QuerySums {
 public:
  explicit QuerySums(const Model& model);  // which outlives it
  void add(const StepSignal& signal);      // kQueries, un-rotated
  std::span<double> sums() { return sums_; }
  std::span<const double> sums() const { return sums_; }
  // In the layout of policy/query_centres.h; `tokens`: queries of each head.
  std::vector<float> means(long long tokens) const;

 private:
  const Hyperparameters& hyper_;
  QueryCentres layout_;
  std::vector<double> sums_;
};

// Reads the text with the full cache, in independent pieces of at most 2,048 tokens. Returns the weights of all KV
// heads in the layout of policy/query_centres.h; early, with the means so far, if `progress` returns false. Throws
// Error unless the model runs on the CPU's fast path.
std::vector<float> query_centres(Decoder& decoder, std::span<const TokenId> text,
                                 const std::function<bool(long long done, long long total)>& progress = {});

// Writes them for this model, in the format that policy `triattention` reads. Throws Error.
void write_query_centres(const std::string& path, const Model& model, std::span<const float> weights);

}  // namespace palimpsest
