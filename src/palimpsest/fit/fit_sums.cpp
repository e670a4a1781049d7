#include "palimpsest/fit/fit_sums.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/core/vectors.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/policy/scorer_formats.h"
#include "palimpsest/policy/temporal_inputs.h"

namespace palimpsest {
namespace {

constexpr int kBlock = 256;         // samples
constexpr float kLeastMax = 1e-4F;  // of a max weight, before its logarithm
constexpr double kRidge = 1e-3, kTemporalRidge = 1e-4;

// Samples of one head, input by input.
class Block {
 public:
  Block(const Observation& of, int head, std::size_t beside) : of_(of), head_(head), beside_(beside) {}

  void begin(int samples) {
    samples_ = static_cast<std::size_t>(samples);
    columns_.assign(samples_ * (beside_ + at(of_.key_width) + at(of_.value_width)), 0);
    target_.assign(samples_, 0);
  }
  float& input(std::size_t i, int sample) { return columns_[i * samples_ + at(sample)]; }
  float& target(int sample) { return target_[at(sample)]; }
  // Constant, norms, key and value of a token. Everything is multiplied by `weight`, the root of the sample's weight.
  void set_token(int sample, int token, float weight) {
    const auto key = row(of_.keys, token, of_.key_width), value = row(of_.values, token, of_.value_width);
    input(0, sample) = weight;
    input(1, sample) = weight * norm(key);
    input(2, sample) = weight * norm(value);
    for (std::size_t d = 0; d < key.size(); ++d) input(beside_ + d, sample) = weight * key[d];
    for (std::size_t d = 0; d < value.size(); ++d) input(beside_ + key.size() + d, sample) = weight * value[d];
  }
  void add_to(NormalEquations& sums) const { sums.add(columns_, target_); }

 private:
  std::span<const float> row(const std::vector<float>& rows, int token, int width) const {
    return std::span(rows).subspan(of_.row(head_, token) * at(width), at(width));
  }

  const Observation& of_;
  int head_;
  std::size_t beside_, samples_ = 0;  // beside_: inputs before those of the key
  std::vector<float> columns_, target_;
};

// Calls fill(block, sample, token) for each token below `tokens`, in blocks.
template <typename Fill>
void add_tokens(NormalEquations& sums, Block& block, int tokens, Fill fill) {
  for (int first = 0; first < tokens; first += kBlock) {
    const int count = std::min(kBlock, tokens - first);
    block.begin(count);
    for (int i = 0; i < count; ++i) fill(i, first + i);
    block.add_to(sums);
  }
}

// Attention of each token of a head from the queries after a time, sqrt of their mean. [of.times[t].tokens]
std::vector<float> later(const Observation& of, const Observation::Sums& time, int head) {
  std::vector<float> out(at(time.tokens));
  const float* const sum = time.sum.data() + at(head) * out.size();
  for (int token = 0; token < time.tokens; ++token) {
    const float rest = of.end[of.row(head, token)] - sum[token];
    out[at(token)] = std::sqrt(std::max(rest, 0.0F) / static_cast<float>(of.tokens - time.tokens));
  }
  return out;
}

void add_kvzap(NormalEquations& sums, const Observation& of, int head) {
  std::vector<int> seen;
  for (int token = 0; token < of.tokens; ++token)
    if (of.repeated[of.row(head, token)] > 0) seen.push_back(token);
  Block block(of, head, kLinearInputs);
  add_tokens(sums, block, static_cast<int>(seen.size()), [&](int sample, int index) {
    const int token = seen[at(index)];
    block.set_token(sample, token, 1);
    block.target(sample) = std::log(std::max(of.repeated[of.row(head, token)], kLeastMax));
  });
}

// A token is a sample at each time after it, always with the same inputs: one sample of as much weight, whose target is
// the mean.
void add_learned(NormalEquations& sums, const Observation& of, int head) {
  if (of.times.empty()) return;
  std::vector<float> target(at(of.times.back().tokens)), count(target.size());
  for (const auto& time : of.times) {
    const std::vector<float> of_time = later(of, time, head);
    for (std::size_t token = 0; token < of_time.size(); ++token) target[token] += of_time[token], ++count[token];
  }
  Block block(of, head, kLinearInputs);
  add_tokens(sums, block, of.times.back().tokens, [&](int sample, int token) {
    const float weight = std::sqrt(count[at(token)]);
    block.set_token(sample, token, weight);
    block.target(sample) = target[at(token)] / weight;
  });
}

void add_temporal(NormalEquations& sums, const Observation& of, int head) {
  Block block(of, head, kTemporalInputs);
  for (const auto& time : of.times) {
    const std::vector<float> target = later(of, time, head);
    const float* const sum = time.sum.data() + at(head) * target.size();
    const float* const before = time.before.data() + at(head) * target.size();
    double all = 0;
    for (std::size_t token = 0; token < target.size(); ++token)
      all += double{std::max(sum[token] - before[token], 0.0F)};
    const float scale = all > 0 ? static_cast<float>(1 / all) : 0;
    add_tokens(sums, block, time.tokens, [&](int sample, int token) {
      block.set_token(sample, token, 1);
      const auto inputs =
          temporal_inputs(static_cast<float>(time.tokens - token), sum[token], (sum[token] - before[token]) * scale);
      for (std::size_t i = 0; i < inputs.size(); ++i) block.input(kLinearInputs + i, sample) = inputs[i];
      block.target(sample) = target[at(token)];
    });
  }
}

std::vector<float> solve_all(const std::vector<NormalEquations>& heads, double ridge) {
  std::vector<float> out;
  for (const NormalEquations& head : heads) {
    const std::vector<float> weights = head.solve(ridge);
    out.insert(out.end(), weights.begin(), weights.end());
  }
  return out;
}

}  // namespace

FitSums::FitSums(const Model& model) : queries_(model) {
  const PolicyModel shape = policy_model(model, {});
  const std::size_t heads = at(shape.heads), linear = sized(kKvZapFormat, kLinearInputs, shape).floats;
  kvzap_.assign(heads, NormalEquations(linear));
  learned_ = kvzap_;
  temporal_.assign(heads, NormalEquations(sized(kTemporalFormat, kTemporalInputs, shape).floats));
  shares_.assign(heads, 0);
}

void FitSums::add(const Observation& of, double keep) {
  for (int head = 0; head < of.heads; ++head) {
    add_kvzap(kvzap_[at(head)], of, head);
    add_learned(learned_[at(head)], of, head);
    add_temporal(temporal_[at(head)], of, head);
  }
  const std::vector<double> shares = profile_shares(of.repeated, of.heads, keep);
  for (std::size_t head = 0; head < shares.size(); ++head) shares_[head] += shares[head];
  ++texts_;
  tokens_ += of.tokens;
}

std::vector<float> FitSums::kvzap() const {
  return solve_all(kvzap_, kRidge);
}
std::vector<float> FitSums::learned() const {
  return solve_all(learned_, kRidge);
}
std::vector<float> FitSums::temporal() const {
  return solve_all(temporal_, kTemporalRidge);
}
std::vector<double> FitSums::shares() const {
  std::vector<double> out(shares_);
  for (double& share : out) share /= std::max(1, texts_);
  return out;
}

void FitSums::save(ByteWriter& out) const {
  out.put(texts_);
  out.put(tokens_);
  for (const auto* each : {&kvzap_, &learned_, &temporal_})
    for (const NormalEquations& head : *each) head.save(out);
  out.array(std::span(shares_));
  out.array(queries_.sums());
}

void FitSums::load(ByteReader& in) {
  texts_ = in.get<int>();
  tokens_ = in.get<long long>();
  for (auto* each : {&kvzap_, &learned_, &temporal_})
    for (NormalEquations& head : *each) head.load(in);
  const auto shares = in.array<double>(), queries = in.array<double>();
  in.require(shares.size() == shares_.size() && queries.size() == queries_.sums().size(), "its sums have another size");
  shares_ = shares;
  std::ranges::copy(queries, queries_.sums().begin());
}

}  // namespace palimpsest
