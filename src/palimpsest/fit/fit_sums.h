// The sums over texts from which a model's files follow: scorers of policies `kvzap`, `learned` and `temporal`, shares
// of heads, mean queries. They add up text by text and are saved between texts.
//
//   file        inputs                                       target
//   .kvzap      1, ||k||, ||v||, k, v                        ln(max weight while the text is repeated), of tokens that
//                                                            some query of the repetition sees (layers with windows)
//   .scorer     the same                                     sqrt(mean attention from later queries)
//   .temporal   and age and attention so far                 sqrt(mean attention from later queries)
//   .profile    max weight while the text is repeated        (profile_shares, eval/head_profile.h)
//   .centres    queries                                      (policy/query_centres.h)
//
// Linear least squares per head. The square root is a compromise between attention (dominated by a few sinks) and its
// logarithm (dominated by the lowest values).
#pragma once

#include <vector>

#include "palimpsest/eval/head_profile.h"
#include "palimpsest/fit/normal_equations.h"
#include "palimpsest/fit/observation.h"

namespace palimpsest {

class FitSums {
 public:
  explicit FitSums(const Model& model);  // which outlives it

  // The receiver of queries of observe(); a text that was not observed to its end leaves the sums unusable.
  QuerySums& queries() { return queries_; }
  // `keep`: the share of the tokens of all heads for which the heads compete (eval/head_profile.h).
  void add(const Observation& of, double keep);

  std::vector<float> kvzap() const;     // [heads][3 + key + value]; each throws Error without texts
  std::vector<float> learned() const;   // likewise
  std::vector<float> temporal() const;  // [heads][9 + key + value]
  std::vector<double> shares() const;   // [heads], mean 1
  std::vector<float> mean_queries() const { return queries_.means(tokens_); }
  int texts() const { return texts_; }
  long long tokens() const { return tokens_; }

  void save(ByteWriter& out) const;
  void load(ByteReader& in);  // of the same model; throws Error

 private:
  int texts_ = 0;
  long long tokens_ = 0;
  std::vector<NormalEquations> kvzap_, learned_, temporal_;  // [heads]
  std::vector<double> shares_;                               // [heads], summed over texts
  QuerySums queries_;
};

}  // namespace palimpsest
