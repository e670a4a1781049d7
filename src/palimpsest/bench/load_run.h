// A load is sent to whatever answers it, and every token's arrival is noted.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/bench/load.h"

namespace palimpsest {

// What became of one request. Times: seconds after the load began.
struct LoadAnswer {
  double sent = 0, end = 0;
  std::vector<double> heard;  // when tokens came
  long long prompt_tokens = 0, tokens = 0, evicted = 0;
  bool complete = false;
  std::string error;  // of one that is not complete

  double ttft() const { return heard.front() - sent; }  // of a complete one
};

class LoadListener {  // of one request; called from any one thread at a time
 public:
  virtual ~LoadListener() = default;
  virtual void token() = 0;
  virtual void end(const LoadAnswer& counts) = 0;  // its times are not read; the last call
};

struct LoadState {  // of one moment; -1: not known
  double at = 0;
  int running = -1, waiting = -1;
  long long cache_bytes = -1;
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // Returns at once. The listener hears of the answer, or of why there is none.
  virtual void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) = 0;
  virtual LoadState state() = 0;           // throws Error if nothing will be answered any more
  virtual LoadState peak() { return {}; }  // the most since it was made, where that is counted
  virtual void cancel() = 0;               // all that was sent; the listeners hear of it
};

struct LoadReport {
  std::vector<LoadAnswer> answers;  // in the order in which they were sent
  std::vector<LoadState> states;    // every 50 ms
  double seconds = 0;               // from the first request sent to the last answer
  LoadState peak;                   // of the states, if the target counts no better
  long long cache_bytes_after = -1;
};

// Sends each request when it arrives, but `concurrency` at a time at the most (0: no limit), and waits for all answers.
// `go_on`: asked a few times a second with the number of answers so far; when it says no, the rest is cancelled.
LoadReport run_load(LoadTarget& target, const std::vector<LoadRequest>& requests, int concurrency,
                    const std::function<bool(int)>& go_on);

}  // namespace palimpsest
