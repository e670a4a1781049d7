#include "palimpsest/fit/observation.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/full_reader.h"
#include "palimpsest/eval/repetition.h"

namespace palimpsest {
namespace {

constexpr std::string_view kFitting = "fitting is supported";

// Heads report concurrently, each to its own rows; layers one after the other, so they share rows of weights.
class Observer final : public AttentionReceiver {
 public:
  Observer(Observation& out, QuerySums& queries, const Cache& cache)
      : weights(cache.geometry()), out_(out), queries_(queries), cache_(cache) {}
  WeightRows weights;

  void receive(const StepSignal& signal) override {
    switch (signal.kind) {
      case StepSignal::Kind::kWeights:
        return receive_weights(signal.head);
      case StepSignal::Kind::kKeysAndValues:
        copy(signal.rows, signal.head, out_.key_width, out_.keys);
        return copy(signal.values, signal.head, out_.value_width, out_.values);
      case StepSignal::Kind::kQueries:
        return queries_.add(signal);
      case StepSignal::Kind::kVictim:
        return;
    }
  }

 private:
  void receive_weights(int head) {
    const PositionView position = cache_.table(0).position();
    const std::vector<float>& weight = weights.of(head);
    float* const row = out_.end.data() + out_.row(head);
    for (std::size_t slot = 0; slot < position.size(); ++slot)
      if (position[slot] != kNoPosition) row[position[slot]] += weight[slot];
  }

  void copy(const Rows& rows, int head, int width, std::vector<float>& to) const {
    const auto first = static_cast<int>(cache_.next()) - rows.count;
    for (int i = 0; i < rows.count; ++i)
      std::ranges::copy(rows[i], to.begin() + static_cast<std::ptrdiff_t>(out_.row(head, first + i) * at(width)));
  }

  Observation& out_;
  QuerySums& queries_;
  const Cache& cache_;
};

// The sums of all heads for the first `tokens` tokens.
std::vector<float> first_of(const Observation& of, const std::vector<float>& sums, int tokens) {
  std::vector<float> out;
  out.reserve(at(of.heads) * at(tokens));
  for (int head = 0; head < of.heads; ++head) {
    const auto from = sums.begin() + static_cast<std::ptrdiff_t>(of.row(head));
    out.insert(out.end(), from, from + tokens);
  }
  return out;
}

void keep_sums(Observation& of, int read) {
  if (read > of.tokens * 3 / 4) return;
  // The sums before the last 48 queries of the next time, whose own tokens have had none by then.
  if ((read + kFitLately) % kFitStep == 0 && read + kFitLately <= of.tokens * 3 / 4)
    of.times.push_back({.tokens = read + kFitLately, .sum = {}, .before = first_of(of, of.end, read + kFitLately)});
  if (read % kFitStep == 0) of.times.back().sum = first_of(of, of.end, read);
}

}  // namespace

void check_observable(Decoder& decoder) {
  const Hyperparameters& hyper = decoder.model().hyper();
  FullReader::check(decoder, kFitting);
  const HeadGeometry& geometry = hyper.geometry;
  if (geometry.heads() == 0 || !geometry.is_uniform())
    fail(
        "fitting needs layers that all have KV heads of one shape; this model's layers differ: `palimpsest heads` "
        "measures streaming heads and shares of it");
}

Observation observe(Decoder& decoder, std::span<const TokenId> text, std::span<const TokenId> instruction,
                    QuerySums& queries, const std::function<bool(long long done, long long total)>& progress) {
  check_observable(decoder);
  const Hyperparameters& hyper = decoder.model().hyper();
  FullReader reader(decoder, kFitting);

  Observation out;
  out.heads = hyper.geometry.heads();
  out.tokens = static_cast<int>(text.size());
  out.key_width = hyper.geometry.layer(0).key_width;
  out.value_width = hyper.geometry.layer(0).value_width;
  const std::size_t rows = at(out.heads) * text.size();
  out.keys.resize(rows * at(out.key_width));
  out.values.resize(rows * at(out.value_width));
  out.repeated.resize(rows);
  out.end.resize(rows);
  Observer observer(out, queries, reader.cache());
  long long done = 0;
  const auto go_on = [&](std::size_t more) {
    done += static_cast<long long>(more);
    return !progress || progress(done, 2 * static_cast<long long>(text.size()));
  };

  for (auto rest = text; !rest.empty();) {
    const auto chunk = rest.first(std::min(std::size_t{kFitChunk}, rest.size()));
    reader.read(chunk, [&](SequenceStep& step) {
      step.receiver = &observer;
      step.weights = observer.weights.of_step(reader.slots());
      step.report_kv = true;
      step.report_queries = true;
    });
    keep_sums(out, static_cast<int>(reader.cache().next()));
    rest = rest.subspan(chunk.size());
    if (!go_on(chunk.size())) return out;
  }

  read_repetition(reader, text, instruction, out.repeated, go_on);
  return out;
}

}  // namespace palimpsest
