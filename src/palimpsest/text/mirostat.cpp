#include "palimpsest/text/mirostat.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

namespace palimpsest {
namespace {

std::span<llama_token_data> candidates_of(const llama_token_data_array& array) {
  return {array.data, array.size};
}

void sort_first(std::span<llama_token_data> candidates, std::size_t count) {
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(std::min(count, candidates.size()));
  std::ranges::partial_sort(candidates, end, std::greater(), &llama_token_data::logit);
}

void fill_probabilities(std::span<llama_token_data> candidates) {
  const float max = std::ranges::max_element(candidates, {}, &llama_token_data::logit)->logit;
  float sum = 0;
  for (llama_token_data& each : candidates) sum += each.p = std::exp(each.logit - max);
  for (llama_token_data& each : candidates) each.p /= sum;
}

// Version 1: how many candidates have the target surprise if probabilities follow Zipf's law, whose exponent is
// estimated from the first ranks. Sorts as many.
std::size_t by_zipf(std::span<llama_token_data> candidates, float mu, int tokens) {
  constexpr std::size_t kRanks = 100;
  sort_first(candidates, kRanks);
  float products = 0, squares = 0;
  for (std::size_t i = 0; i + 1 < std::min(kRanks, candidates.size()); ++i) {
    const float t = std::log(static_cast<float>(i + 2) / static_cast<float>(i + 1));
    products += t * (candidates[i].logit - candidates[i + 1].logit);  // ln of the probabilities' quotient
    squares += t * t;
  }
  const float exponent = products / squares, excess = exponent - 1;
  const float count =
      std::pow(excess * std::pow(2.0F, mu) / (1 - std::pow(static_cast<float>(tokens), -excess)), 1 / exponent);
  if (!(count >= 1)) return 1;  // NaN of a single candidate
  const auto kept = static_cast<std::size_t>(std::min(count, static_cast<float>(candidates.size())));
  sort_first(candidates, kept);
  return kept;
}

// Version 2: the candidates whose surprise is at most `mu`, sorted; at least one.
std::size_t by_surprise(std::span<llama_token_data> candidates, float mu) {
  fill_probabilities(candidates);
  const auto rest =
      std::ranges::partition(candidates, [&](const llama_token_data& each) { return !(-std::log2(each.p) > mu); });
  const auto kept = std::max<std::size_t>(candidates.size() - rest.size(), 1);
  sort_first(rest.size() == candidates.size() ? candidates : candidates.first(kept), kept);
  return kept;
}

}  // namespace

int Mirostat::draw(const llama_token_data_array& array) {
  std::vector<float> p;
  p.reserve(array.size);
  for (const llama_token_data& each : candidates_of(array)) p.push_back(each.p);
  return std::discrete_distribution<int>(p.begin(), p.end())(random_);
}

void Mirostat::apply(llama_token_data_array& array) {
  const auto all = candidates_of(array);
  if (std::ranges::any_of(all, [](const llama_token_data& each) { return std::isnan(each.logit); })) {
    array.selected = -1;  // a sort needs an order
    return;
  }
  array.size = version_ == 1 ? by_zipf(all, mu_, tokens_) : by_surprise(all, mu_);
  array.sorted = true;
  fill_probabilities(candidates_of(array));
  array.selected = draw(array);
  mu_ -= eta_ * (-std::log2(array.data[array.selected].p) - tau_);
}

void Mirostat::resume(std::uint32_t seed, float mu, std::uint64_t draws) {
  random_.seed(seed);
  mu_ = mu;
  llama_token_data two[] = {{0, 0, 0.5F}, {1, 0, 0.5F}};
  for (std::uint64_t i = 0; i < draws; ++i) draw({two, 2, -1, true});
}

}  // namespace palimpsest
