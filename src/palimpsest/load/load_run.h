// Sends a load to a target and records the arrival time of every token.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/load/load.h"

namespace palimpsest {

// The result of one request. Times are seconds after the start of the load.
struct LoadAnswer {
  double sent = 0, end = 0;
  std::vector<double> token_times;  // arrival times of the tokens
  long long prompt_tokens = 0, tokens = 0, evicted = 0;
  long long cached = 0;     // prompt tokens that were not read
  long long repeated = -1;  // LoadRequest::repeated
  bool complete = false;
  std::string error;  // if not complete

  double ttft() const { return token_times.front() - sent; }  // only if complete
};

class LoadListener {  // of one request; called from one thread at a time
 public:
  virtual ~LoadListener() = default;
  virtual void token() = 0;
  virtual void end(const LoadAnswer& counts) = 0;  // the last call; times in `counts` are ignored
};

struct LoadState {  // a snapshot of the target; -1: unknown
  double at = 0;
  int running = -1, waiting = -1;
  long long cache_bytes = -1;  // of running requests
  long long kept_bytes = -1;   // of kept prefixes and histories
};

class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // Returns at once. The listener receives the answer or the error.
  virtual void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) = 0;
  virtual LoadState state() = 0;           // throws Error if the target has failed
  virtual LoadState peak() { return {}; }  // max values since construction, if the target counts them
  virtual void cancel() = 0;               // cancels all requests; their listeners are called
};

struct LoadReport {
  std::vector<LoadAnswer> answers;  // in the order of sending
  std::vector<LoadState> states;    // sampled every 50 ms
  double seconds = 0;               // from the first request to the end of the last answer
  LoadState peak;                   // max of target.peak() and of the sampled states
  long long cache_bytes_after = -1;
};

// Sends each session's requests, the first at its arrival time, with at most `concurrency` sessions at a time (0: no
// limit), and waits for all answers.
// Calls `go_on` a few times per second with the number of finished requests; cancels the rest when it returns false.
LoadReport run_load(LoadTarget& target, const std::vector<LoadRequest>& requests, int concurrency,
                    const std::function<bool(int)>& go_on);

}  // namespace palimpsest
