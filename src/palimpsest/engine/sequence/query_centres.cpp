#include "palimpsest/engine/sequence/query_centres.h"

#include <algorithm>
#include <cmath>

#include "palimpsest/engine/sequence/full_reader.h"
#include "palimpsest/engine/sequence/session_options.h"
#include "palimpsest/policy/query_centres.h"

namespace palimpsest {
namespace {

constexpr std::size_t kPiece = 2048, kChunk = 256;

class CentresReceiver final : public AttentionReceiver {
 public:
  explicit CentresReceiver(QuerySums& sums) : sums_(sums) {}
  void receive(const StepSignal& signal) override { sums_.add(signal); }

 private:
  QuerySums& sums_;
};

}  // namespace

QuerySums::QuerySums(const Model& model)
    : hyper_(model.hyper()), layout_(policy_model(model, {})), sums_(at(hyper_.geometry.heads()) * layout_.floats()) {}

void QuerySums::add(const StepSignal& signal) {
  const RotatedPairs pairs(hyper_.rope_table(hyper_.rope_of(hyper_.geometry.layer_of(signal.head))));
  const auto mean = layout_.mean(std::span(sums_), signal.head, signal.member);
  const auto lengths = layout_.lengths(std::span(sums_), signal.head, signal.member);
  for (int i = 0; i < signal.rows.count; ++i) {
    const auto query = signal.rows[i];
    for (std::size_t d = 0; d < query.size(); ++d) mean[d] += double{query[d]};
    for (std::size_t pair = 0; pair < pairs.count; ++pair)
      lengths[pair] += std::hypot(double{query[pairs.real(pair)]}, double{query[pairs.imaginary(pair)]});
  }
}

std::vector<float> QuerySums::means(long long tokens) const {
  std::vector<float> out;
  for (const double sum : sums_) out.push_back(static_cast<float>(sum / static_cast<double>(std::max(1LL, tokens))));
  return out;
}

std::vector<float> query_centres(Decoder& decoder, std::span<const TokenId> text,
                                 const std::function<bool(long long done, long long total)>& progress) {
  QuerySums sums(decoder.model());
  CentresReceiver receiver(sums);
  long long done = 0;
  bool goes_on = true;
  for (auto rest = text; !rest.empty() && goes_on; rest = rest.subspan(std::min(kPiece, rest.size()))) {
    FullReader reader(decoder, "mean queries are measured");
    for (auto piece = rest.first(std::min(kPiece, rest.size())); !piece.empty() && goes_on;) {
      const auto chunk = piece.first(std::min(kChunk, piece.size()));
      reader.read(chunk, [&](SequenceStep& step) {
        step.receiver = &receiver;
        step.report_queries = true;
      });
      piece = piece.subspan(chunk.size());
      done += static_cast<long long>(chunk.size());
      goes_on = !progress || progress(done, static_cast<long long>(text.size()));
    }
  }
  return sums.means(done);
}

void write_query_centres(const std::string& path, const Model& model, std::span<const float> weights) {
  const PolicyModel of = policy_model(model, {});
  write_scorer(path, QueryCentres(of).format(), of, weights);
}

}  // namespace palimpsest
