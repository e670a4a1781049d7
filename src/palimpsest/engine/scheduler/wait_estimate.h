// Estimates of time. When the requests that wait now will have begun: from the tokens that running and waiting requests
// have to read and to write, and from the measured time of both.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace palimpsest {

// What one request has to do.
struct TokensLeft {
  long long read = 0, write = 0;  // write: at most
};

class WaitEstimate {
 public:
  // Until steps are measured, a step is expected to read the weights at 10 GB/s.
  explicit WaitEstimate(std::size_t weight_bytes);

  // A step of the model read so many tokens of prompts, and wrote so many of `sequences`.
  void stepped(long long read, long long written, int sequences, double seconds);
  // A request ended after so many tokens, itself (`ended_early`) or because it had all that it may write, or was
  // aborted.
  void ended(long long tokens, bool ended_early);

  double seconds_to_read(long long tokens) const;  // of a prompt, if nothing else runs

  // Seconds until the last of `waiting` begins. They begin in this order, each when one ends, so that as many run as
  // now.
  double seconds_until_begun(std::span<const TokensLeft> running, std::span<const TokensLeft> waiting) const;

 private:
  // Measured seconds by expected seconds, of the newest steps.
  struct Ratio {
    double measured, expected;
    void add(double seconds, double of_expected);
    double value() const { return measured / expected; }
  };
  double seconds_of_written(int sequences) const;  // expected, for each token
  double seconds_of(const TokensLeft& left, int sequences) const;

  double weights_;  // expected seconds of a step of one token
  Ratio reading_, writing_;
  double ends_, tokens_;  // of the last requests: a text ends with each token with the probability ends / tokens
};

// How fast kept caches are loaded from disk.
class LoadSpeed {
 public:
  double seconds(std::size_t bytes) const { return static_cast<double>(bytes) * seconds_ / bytes_; }
  void loaded(std::size_t bytes, double seconds);
  void skipped() { seconds_ *= 0.95; }  // a file was not loaded: a disk that was slow is tried again in time

 private:
  double bytes_ = 500e6, seconds_ = 1;  // of the loads of the last 5 seconds; as expected before the first
};

}  // namespace palimpsest
