// The price of a draft (engine/speculation/draft_price.h) from the times of a text's own steps: what a draft takes to
// be made and to be read, in steps without drafts. For drafts by a second cache of the same model: both times grow with
// the text.
#pragma once

#include <chrono>
#include <optional>

namespace palimpsest {

class DraftTimes {
 public:
  using Clock = std::chrono::steady_clock;

  // A step begins. Whether it should have no drafts: the first ones, then each kInterval-th.
  bool begin(Clock::time_point now = Clock::now());
  // Whether no drafts were made for so long that their price may have changed.
  bool due() const { return steps_ - drafted_ > kDue; }
  void drafted(long long drafts, Clock::time_point now = Clock::now());  // so many drafts are made
  void read(int drafts, Clock::time_point now = Clock::now());           // the step ended; no effect without begin()

  // Of each draft; nullopt: not known yet.
  std::optional<double> price() const;

 private:
  static constexpr int kFirst = 2, kInterval = 128, kDue = 512;  // steps
  // The mean of the last few times. One that is much longer, because of another program, counts little.
  struct Mean {
    double seconds = 0;
    bool known = false;
    void add(double more);
  };
  Clock::time_point start_, made_;
  bool running_ = false;
  long long steps_ = 0, drafted_ = 0, times_drafted_ = 0;
  Mean plain_, draft_, more_;  // a step without drafts; to make a draft; what a step takes more for each draft
};

}  // namespace palimpsest
