// Continuous batching: in every step the running sequences take a token each, and what is left of the step's token
// limit goes to prompts, in chunks. The shortest prompt goes first, and the oldest gets every other chunk at least.
//
//   submit -> queue -> admitted: its bytes are promised -> prompt in chunks -> a token in every step -> finished
//
// Admission is by all bytes of the method's plan: pages, tables, statistics, merged tokens, weights
// (MethodPlan::bytes). A budget bounds what a sequence can ever hold, so a promise is kept without ever taking a page
// from a running sequence, and nothing is allocated for a request that waits. Requests are admitted in the order they
// came; one that has to wait is overtaken by those that need not, but never waits for them alone, so none waits for
// ever. One that could never fit is refused at once.
//
// A failure while a request is served ends that request, never the loop (engine/step_loop.h).
//
// A prompt that begins as another one did goes on from there (engine/prefix_cache.h). It is promised all its pages all
// the same, so there is one for every copy of a page that it may have to make; kept beginnings live in what the others
// leave, and give way whenever a page is wanted and none is free.
//
// Sequences with different methods share a step as long as their keys rotate alike; else each kind has its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stop_token>
#include <unordered_set>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/prefix_cache.h"
#include "palimpsest/engine/request.h"
#include "palimpsest/engine/snapshot_loader.h"
#include "palimpsest/engine/step_loop.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct SchedulerOptions {
  CacheTypes cache_type = {};  // of keys and of values
  int page_size = 64;
  int chunk = kDefaultChunk;  // of a prompt; always as many, so that a result does not depend on who else is there
  // Tokens of a step, of prompts and answers together. 0: room for a chunk and a token of each sequence, and no less
  // than kDefaultChunk.
  int step_tokens = 0;
  int max_sequences = 64;  // that run at a time
  int max_queue = 256;     // that wait; more are refused with QueueFull
  // Of all sequences together: keys and values, and their tables.
  std::size_t pool_bytes = std::size_t{1} << 30;
  std::size_t prefix_bytes = 0;  // of these, for kept beginnings of prompts, at the most; 0: none
};

class QueueFull : public Error {
  using Error::Error;
};

struct SchedulerLoad {  // one moment's state, and sums since the start
  int waiting = 0, running = 0, running_peak = 0;
  std::size_t pool_bytes = 0, promised_bytes = 0;
  std::size_t used_bytes = 0, prefix_bytes = 0, peak_bytes = 0;  // pages in use: not kept; kept; peak of both together
  long long steps = 0, prompt_tokens = 0, tokens = 0, evicted = 0;  // tokens: written
  long long prefix_queries = 0, prefix_hits = 0;  // tokens of prompts that were looked for, that were found
  long long copied_bytes = 0;                     // of shared pages that somebody wrote in
  double seconds_per_request = 0;                 // lately, from one end to the next while some waited; 0: none did
  long long finished[6] = {};                     // by Finish
};

class Scheduler {
 public:
  // `vocabulary` may be nullptr (synthetic models): no grammar then, and no token ends a text. Throws Error.
  Scheduler(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
            const SchedulerOptions& options);
  ~Scheduler();  // whoever is left hears kCancelled

  // From any thread.
  // Throws Error for a request that is impossible or needs more than the whole pool, QueueFull for one too many; the
  // listener then hears nothing.
  std::uint64_t submit(Request request, std::shared_ptr<RequestListener> listener);
  void cancel(std::uint64_t id);  // at the next step; unknown and finished ones are ignored
  SchedulerLoad load() const;

  // From one thread.
  bool step();                     // false: nobody runs or waits, or all that run are not ready
  void run(std::stop_token stop);  // steps until stopped; sleeps while there is nothing to do
  void wake();                     // a listener is ready again: run() looks

  const SchedulerOptions& options() const { return options_; }
  const Decoder& decoder() const { return *decoder_; }

 private:
  struct Job;
  struct JobShare;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  std::shared_ptr<const MethodPlan> plan_of(const Request& request) const;  // throws Error
  static PlanBytes bytes_of(const Request& request, const MethodPlan& plan);
  SessionOptions options_of(const Request& request) const;
  std::deque<std::unique_ptr<Job>>::iterator next_of_queue();
  std::unique_ptr<Job> take_next();  // nullptr: nobody waits, or there is no room yet
  void admit();
  void make_sequence(Job& job);
  void keep_promises();
  void begin_to_load(Job& job);
  bool load_some();  // caches that come from snapshots: whether any is not there yet
  void restore(Job& job, std::unique_ptr<Sequence> sequence);
  void go_on_from_kept(Job& job);
  bool read_by_another(const Job& job) const;
  std::unique_ptr<Job> take_gone(const std::unordered_set<std::uint64_t>& cancelled, Clock::time_point now);
  void end_some();   // the cancelled and the late
  void share_out();  // who takes part in this step
  void begin(Job& job) noexcept;
  void go_on(Job& job) noexcept;
  void keep_beginning(Job& job) noexcept;
  void advance(Job& job, std::span<const float> logits);
  void finish(Job& job, Finish finish, std::string error = {}) noexcept;
  void fail_job(Job& job) noexcept;
  void fail_share(Job& job) noexcept;
  void clear_away();  // finished jobs, and their pages with them

  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  SchedulerOptions options_;
  std::vector<TokenId> repeat_;  // SessionOptions::repeat
  std::shared_ptr<PagePool> pool_;
  std::shared_ptr<Workers> workers_;
  // Closed after all that hold pages were destroyed.
  std::shared_ptr<SequenceReturns> returns_ = std::make_shared<SequenceReturns>();
  struct Closing {
    SequenceReturns& returns;
    ~Closing() { returns.close(); }
  } closing_{*returns_};

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable_any changed_;
  std::deque<std::unique_ptr<Job>> queue_;
  std::unordered_set<std::uint64_t> cancelled_;  // heard of since the last step
  std::uint64_t last_id_ = 0;
  SchedulerLoad load_;
  bool woken_ = false;
  Clock::time_point last_end_ = Clock::now();  // of a request, or when last nobody waited

  Jobs running_;  // in the order they were admitted; of the stepping thread alone, as what follows
  PrefixCache prefixes_;
  long long prefix_hits_ = 0;
  StepLoop loop_;
  std::vector<Job*> prompts_;      // that might go on in this step
  std::uint64_t passed_over_ = 0;  // the oldest of them, if it got nothing in the last step
  std::vector<StepShare*> group_;  // that take part, with keys that are rotated alike
  SnapshotLoader loader_{returns_, [this] { wake(); }};
};

}  // namespace palimpsest
