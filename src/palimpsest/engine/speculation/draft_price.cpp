#include "palimpsest/engine/speculation/draft_price.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 3;  // the fastest counts

// The number of layers whose weights have so many bytes.
int layers_of(const Hyperparameters& hyper, std::size_t bytes) {
  const auto layers = static_cast<std::size_t>(hyper.layers);
  const std::size_t of_layer = std::max<std::size_t>(1, hyper.weight_bytes / layers);
  return static_cast<int>(std::clamp<std::size_t>((bytes + of_layer - 1) / of_layer, 1, layers));
}

// Steps of a sequence that holds nothing else.
class Probe {
 public:
  Probe(Decoder& decoder, int max)
      : decoder_(decoder), sequence_(decoder, options(max), nullptr), hyper_(decoder.model().hyper()) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (int i = 0; i < 1 + max; ++i)
      tokens_.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(hyper_.vocabulary)));
    hidden_.resize(tokens_.size() * at(hyper_.width));
    for (float& x : hidden_) x = normal(random);
  }

  int max() const { return sequence_.plan().draft_max(); }
  double seconds(int drafts, LayerRange layers) {
    sequence_.clear();
    sequence_.read(tokens_[0], std::span(tokens_).subspan(1, at(drafts)));
    SequenceStep step = sequence_.next();
    step.layers = layers;
    if (layers.first > 0) step.hidden = std::span(hidden_).first(step.tokens.size() * at(hyper_.width));
    decoder_.prepare({&step, 1});
    const auto start = Clock::now();
    const auto result = decoder_.run();
    const auto end = Clock::now();
    sequence_.done(result);
    sequence_.accept(0);
    return std::chrono::duration<double>(end - start).count();
  }

 private:
  static SessionOptions options(int max) {
    SessionOptions options;
    options.method = parse_method("full");
    options.draft_max = max;
    return options;
  }

  Decoder& decoder_;
  Sequence sequence_;
  const Hyperparameters& hyper_;
  std::vector<TokenId> tokens_;
  std::vector<float> hidden_;
};

}  // namespace

double DraftPrice::of(int drafts) const {
  std::pair<int, double> before{0, 0};
  for (const auto& point : points_) {
    if (drafts <= point.first || &point == &points_.back())
      return before.second + (point.second - before.second) * (drafts - before.first) / (point.first - before.first);
    before = point;
  }
  return before.second;
}

void DraftPrice::add(double each) {
  for (auto& [drafts, price] : points_) price += each * drafts;
}

DecoderSpeed measure_decoder(Decoder& decoder, int max, std::size_t bytes) {
  const Hyperparameters& hyper = decoder.model().hyper();
  Probe probe(decoder, max);
  std::vector<int> counts{0};
  for (int count = 1; count < probe.max(); count = 2 * count + 1) counts.push_back(count);
  if (probe.max() > 0) counts.push_back(probe.max());

  const int part = layers_of(hyper, bytes);
  const bool all = 2 * part >= hyper.layers || !decoder.cache_options().pages;  // a part runs on the fast path only
  const auto step = [&](int drafts) {
    if (all) return probe.seconds(drafts, {});
    const double layers = probe.seconds(drafts, {0, part}),
                 end = probe.seconds(drafts, {hyper.layers - 1, hyper.layers});  // and the output matrix
    return layers * (hyper.layers - 1) / part + end;
  };
  std::vector<double> seconds(counts.size(), INFINITY);
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < counts.size(); ++i) seconds[i] = std::min(seconds[i], step(counts[i]));

  DecoderSpeed speed{.seconds = seconds[0], .price = DraftPrice()};
  std::vector<std::pair<int, double>> points;
  for (std::size_t i = 1; i < counts.size(); ++i)
    points.emplace_back(counts[i], std::max(0.0, seconds[i] / seconds[0] - 1));
  if (!points.empty()) speed.price = DraftPrice(std::move(points));
  return speed;
}

}  // namespace palimpsest
