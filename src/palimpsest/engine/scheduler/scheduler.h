// Continuous batching: in every step each decoding sequence gets one token, and the rest of the step's token limit goes
// to prefill, in chunks. The shortest prompt goes first; the oldest gets at least every other chunk.
//
//   submit -> queue -> admitted: its bytes are reserved -> prefill in chunks -> one token per step -> finished
//
// Admission reserves all bytes of the method's plan: pages, tables, statistics, merged tokens, weights
// (MethodPlan::bytes). They stay reserved while another thread loads or saves the sequence. The budget bounds a
// sequence's memory, so a running sequence never runs out of pages and is never preempted; nothing is allocated for a
// waiting request. Admission is in order of priority, then of arrival; a request that does not fit may be overtaken by
// later ones, but never waits for overtakers alone, so none starves but for those of greater priority. A request that
// can never fit is refused by submit().
//
// A failure ends the request that caused it, never the loop (engine/sequence/step_loop.h).
//
// A prompt with a kept prefix continues from it (engine/scheduler/prefix_cache.h). All its pages are reserved
// nevertheless, so there is one for each copy-on-write; prefixes use unreserved memory only, and are evicted when no
// page is free. With Reuse::kHistories a prompt may also continue from an earlier prompt with its answer. Those that
// memory has no room for go to a folder, from which they are loaded while others step (engine/scheduler/disk_cache.h).
//
// Sequences with different methods share a step: the model's weights are read once. Embeddings (Request::pooling) are
// read in steps of their own: their rows are hidden states.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <unordered_map>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/disk_writer.h"
#include "palimpsest/engine/scheduler/prefix_cache.h"
#include "palimpsest/engine/scheduler/request.h"
#include "palimpsest/engine/scheduler/scheduler_job.h"
#include "palimpsest/engine/scheduler/wait_estimate.h"
#include "palimpsest/engine/sequence/snapshot_loader.h"
#include "palimpsest/engine/sequence/step_loop.h"
#include "palimpsest/engine/speculation/draft_price.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

struct SchedulerOptions {
  CacheTypes cache_type = {};     // of keys and of values
  std::string profile_file = {};  // SessionOptions::profile_file
  int page_size = 64;
  int chunk = kDefaultChunk;  // prefill chunk; constant, so that results do not depend on other requests
  // Max tokens per step, prefill and decode together. 0: max(kDefaultChunk, max_sequences + chunk).
  int step_tokens = 0;
  int max_sequences = 64;  // running
  int max_queue = 256;     // waiting; more throw QueueFull
  // Memory of all sequences: keys, values, tables.
  std::size_t pool_bytes = std::size_t{1} << 30;
  std::size_t prefix_bytes = 0;  // max of pool_bytes for kept prefixes and histories; 0: none are kept
  // A prompt that differs from a history in its middle continues from an edit of it (EditMode::kReuse) that reuses at
  // least so many tokens at a time; 0: only from histories that it begins with.
  int cache_reuse = 0;
  std::optional<double> draft_price = {};  // DraftOptions::price of requests without one; nullopt: measured
  DiskCacheOptions disk = {};              // of kept prefixes and histories that leave memory

  // Max bytes of a request with budget auto: eight long ones run at the same time. Short ones reserve less.
  std::size_t auto_memory() const { return pool_bytes / 8; }
};

class QueueFull : public Error {
  using Error::Error;
};

struct SchedulerLoad {  // gauges, and counters since the start
  int waiting = 0, running = 0, running_peak = 0;
  std::size_t pool_bytes = 0, reserved_bytes = 0;
  int page_size = 0;     // tokens of a page
  long long blocks = 0;  // of page_size tokens that the pool can hold if all KV heads keep them
  std::size_t used_bytes = 0, prefix_bytes = 0,
              peak_bytes = 0;  // pages of sequences; prefixes, histories; peak of pages
  long long steps = 0, prompt_tokens = 0, tokens = 0, evicted = 0;  // tokens: generated
  long long prefix_queries = 0, prefix_hits = 0;                    // prompt tokens: looked up; found
  long long history_queries = 0, history_hits = 0;                  // requests: looked up; continued from a history
  long long copied_bytes = 0;                                       // copy-on-write of shared pages
  std::size_t disk_max_bytes = 0;                                   // 0: no caches on disk
  long long disk_hits = 0, disk_tokens = 0;                         // requests continued from disk; their tokens there
  long long disk_skipped = 0, disk_errors = 0;  // reading was faster; files that could not be read or written
  long long disk_writes = 0, disk_read_bytes = 0, disk_written_bytes = 0;
  long long finished[6] = {};  // by Finish
};

class Scheduler {
 public:
  // `vocabulary` may be nullptr (synthetic models): no grammars and no end-of-text tokens then. Throws Error.
  Scheduler(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
            const SchedulerOptions& options);
  ~Scheduler();  // finishes all requests with kCancelled

  // From any thread.
  // Throws Error for a request that is invalid or needs more than the whole pool, QueueFull if the queue is full; then
  // the listener is not called.
  std::uint64_t submit(Request request, std::shared_ptr<RequestListener> listener);
  void cancel(std::uint64_t id);  // at the next step, or inside an eviction; unknown and finished ids are ignored
  // Frees the caches that requests of this session left (Request::session), unless others used them, at the next step.
  void close_session(std::string session, int scope);
  SchedulerLoad load() const;
  double seconds_until_begun() const;  // an estimate: until all requests that wait now have begun
  // A request's method with its budget in tokens (evict/resolve.cpp). Throws Error.
  Method resolved(const Method& method) const { return plan_of({.prompt = {}, .method = method})->method(); }

  // From one thread.
  bool step();                     // false: there was nothing to do, or no listener is ready
  void run(std::stop_token stop);  // steps until stopped; sleeps while there is nothing to do
  void wake();                     // wakes run(): a listener is ready again
  void save_kept();                // writes all kept caches to disk that are not there; run() does at its end

  const SchedulerOptions& options() const { return options_; }
  const Decoder& decoder() const { return *decoder_; }

 private:
  using Job = SchedulerJob;
  using Jobs = std::vector<std::unique_ptr<Job>>;

  std::shared_ptr<const MethodPlan> plan_of(const Request& request) const;  // throws Error
  static PlanBytes bytes_of(const Request& request, const MethodPlan& plan);
  SessionOptions options_of(const Request& request) const;
  // scheduler_admission.cpp, down to read_by_another()
  std::deque<std::unique_ptr<Job>>::iterator next_of_queue();
  std::unique_ptr<Job> take_next();  // nullptr: none waits, or none fits
  void admit();
  void reserve(const Job& job);
  void release(std::uint64_t id) noexcept;  // a reservation
  void make_sequence(Job& job);
  void limit_prefixes();
  void begin_to_load(Job& job);
  bool advance_loads();  // advances snapshot loads; whether any is not done
  void restore(Job& job, std::unique_ptr<Sequence> sequence);
  void begin_prompt(Job& job);
  bool begin_from_disk(Job& job);  // scheduler_disk.cpp, down to write_to_disk()
  void restore_from_disk(Job& job, std::unique_ptr<Sequence> sequence);
  bool continue_from_disk(Job& job, const Job::FromDisk& from);
  void give_up_disk(Job& job, const std::string& error);
  void begin_without(Job& job);
  void write_to_disk(std::chrono::milliseconds unused_for) noexcept;
  void edit(Job& job);
  void continue_from_prefix(Job& job);
  void continue_from_history(Job& job);
  bool continue_from_edited(Job& job);  // scheduler_edits.cpp, down to read_anew()
  bool next_edit(Job& job);
  void read_anew(Job& job);
  PlanBytes continued_bytes(const Job& job, long long read, long long all) const;
  bool reserve_more(Job& job, const PlanBytes& bytes);
  bool read_by_another(const Job& job) const;
  std::unique_ptr<Job> take_cancelled();
  void end_cancelled();  // finishes cancelled and late requests, and forgets closed sessions
  void share_out();      // selects the jobs of this step
  int begin_decode(Job& job, int max) noexcept;
  void begin(Job& job) noexcept;
  void sample(std::span<StepShare* const> shares) noexcept;
  void finish_step(Job& job) noexcept;
  void keep_prefix(Job& job) noexcept;
  void keep_history(Job& job, bool in_prompt, std::span<const float> logits = {}) noexcept;
  void report_memory(Job& job, bool last) noexcept;  // scheduler_memory.cpp
  void advance(Job& job, std::span<const float> logits);
  void pool(Job& job, std::span<const float> hidden);
  std::optional<Finish> write(Job& job, SampledToken& token, std::span<const float> logits);
  void finish(Job& job, Finish finish, std::string error = {}) noexcept;
  void fail_job(Job& job) noexcept;
  void fail_share(Job& job) noexcept;
  void remove_finished();  // destroys finished jobs and frees their pages

  std::shared_ptr<Decoder> decoder_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  SchedulerOptions options_;
  std::vector<TokenId> repeat_;  // SessionOptions::repeat
  std::shared_ptr<PagePool> pool_;
  std::optional<DraftPrice> draft_price_;  // measured when the first request with drafts is admitted
  std::shared_ptr<Workers> workers_ = decoder_->workers();
  // Closed after all that hold pages were destroyed.
  std::shared_ptr<SequenceReturns> returns_ = std::make_shared<SequenceReturns>();
  struct Closing {
    SequenceReturns& returns;
    ~Closing() { returns.close(); }
  } closing_{*returns_};

  mutable std::mutex mutex_;  // guards the members down to wait_
  std::condition_variable_any changed_;
  std::deque<std::unique_ptr<Job>> queue_;
  std::unordered_map<std::uint64_t, std::shared_ptr<Interrupt>> interrupts_;  // of requests that wait or run
  std::vector<std::pair<std::string, int>> closed_sessions_;                  // that the stepping thread has not seen
  std::uint64_t last_id_ = 0;
  SchedulerLoad load_;
  bool woken_ = false;
  std::vector<TokensLeft> left_;  // of the running requests
  WaitEstimate wait_{decoder_->model().hyper().weight_bytes};

  // The stepping thread only:
  Jobs running_;  // in order of admission
  std::vector<Reservation> reserved_;
  PrefixCache prefixes_;
  long long prefix_hits_ = 0, history_hits_ = 0;
  StepLoop loop_;
  std::vector<Job*> prompts_;      // candidates for a chunk in this step
  std::uint64_t passed_over_ = 0;  // id of the oldest of them, if it got nothing in the last step; else 0
  std::vector<StepShare*> group_;  // shares of this step with the same StepResult
  SnapshotLoader loader_{returns_, [this] { wake(); }};
  std::shared_ptr<DiskCache> disk_;  // nullptr: none
  LoadSpeed load_speed_;
  std::unique_ptr<DiskWriter> disk_writer_;
  Clock::time_point next_write_{};  // nothing is written before
};

}  // namespace palimpsest
