#include "palimpsest/engine/scheduler/wait_estimate.h"

#include <algorithm>
#include <cmath>

namespace palimpsest {
namespace {

constexpr double kBytesPerSecond = 10e9;
// Expected times of a step, in times of one that reads one token: of a further sequence, and of a token of a prompt.
constexpr double kSequence = 0.25, kPromptToken = 0.125;
constexpr double kSeconds = 5, kKeptOfRequests = 0.95;  // steps of the last 5 seconds count, and the last 20 requests
constexpr double kExpectedTokens = 256;                 // of a text that ends itself

}  // namespace

WaitEstimate::WaitEstimate(std::size_t weight_bytes)
    : weights_(std::max(1.0, static_cast<double>(weight_bytes)) / kBytesPerSecond),
      reading_{weights_, weights_},
      writing_{weights_, weights_},
      ends_(1),
      tokens_(kExpectedTokens) {}

void WaitEstimate::Ratio::add(double seconds, double of_expected) {
  const double kept = std::exp(-seconds / kSeconds);
  measured = kept * measured + seconds;
  expected = kept * expected + of_expected;
}

double WaitEstimate::seconds_of_written(int sequences) const {
  return weights_ * (1 + kSequence * (sequences - 1)) / sequences;
}

void WaitEstimate::stepped(long long read, long long written, int sequences, double seconds) {
  const double writing = sequences == 0 ? 0 : static_cast<double>(written) * seconds_of_written(sequences);
  if (read == 0)
    writing_.add(seconds, writing);
  else  // what is left of the time was reading
    reading_.add(std::max(seconds - writing * writing_.value(), seconds / 10),
                 static_cast<double>(read) * weights_ * kPromptToken);
}

void WaitEstimate::ended(long long tokens, bool ended_early) {
  ends_ = kKeptOfRequests * ends_ + (ended_early ? 1 : 0);
  tokens_ = kKeptOfRequests * tokens_ + static_cast<double>(tokens);
}

double WaitEstimate::seconds_to_read(long long tokens) const {
  return static_cast<double>(tokens) * weights_ * kPromptToken * reading_.value();
}

double WaitEstimate::seconds_of(const TokensLeft& left, int sequences) const {
  const double ends = ends_ / tokens_, max = static_cast<double>(left.write);
  const double written = -std::expm1(-ends * max) / ends;  // on average: many texts end before
  return seconds_to_read(left.read) + written * seconds_of_written(sequences) * writing_.value();
}

double WaitEstimate::seconds_until_begun(std::span<const TokensLeft> running,
                                         std::span<const TokensLeft> waiting) const {
  if (waiting.empty()) return 0;
  const int sequences = std::max(1, static_cast<int>(running.size()));
  std::vector<double> left;  // seconds of the machine alone; all that run share it equally
  for (const TokensLeft& each : running) left.push_back(seconds_of(each, sequences));
  double seconds = 0;
  for (const TokensLeft& next : waiting) {
    if (!left.empty()) {
      const auto first = std::ranges::min_element(left);
      const double share = *first;
      seconds += share * static_cast<double>(left.size());
      left.erase(first);
      for (double& each : left) each -= share;
    }
    left.push_back(seconds_of(next, sequences));
  }
  return seconds;
}

void LoadSpeed::loaded(std::size_t bytes, double seconds) {
  const double kept = std::exp(-seconds / kSeconds);
  bytes_ = kept * bytes_ + static_cast<double>(bytes);
  seconds_ = kept * seconds_ + seconds;
}

}  // namespace palimpsest
