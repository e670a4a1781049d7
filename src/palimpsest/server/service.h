// State shared by all connections: the scheduler and its thread, or the encoder, the model's name and vocabulary,
// metrics, sessions, open tickets.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "palimpsest/encoder/encoder.h"
#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/server/metrics.h"
#include "palimpsest/server/response_store.h"
#include "palimpsest/server/served_model.h"
#include "palimpsest/server/sessions.h"

namespace palimpsest {

class Service {
 public:
  static constexpr std::size_t kResponseBytes = std::size_t{64} << 20;

  // `sessions`: nullptr disables saved sessions. `response_bytes`: of stored responses. Throws Error.
  Service(std::shared_ptr<Decoder> decoder, ServedModel model, const SchedulerOptions& options,
          std::shared_ptr<SessionFolders> sessions = nullptr, std::size_t response_bytes = kResponseBytes);
  // Several models share their sessions and responses.
  Service(std::shared_ptr<Decoder> decoder, ServedModel model, const SchedulerOptions& options,
          std::shared_ptr<SessionFolders> sessions, std::shared_ptr<ResponseStore> responses);
  // An encoder. `options`: for the number of requests.
  Service(std::shared_ptr<Encoder> encoder, ServedModel model, const SchedulerOptions& options,
          std::shared_ptr<ResponseStore> responses);
  ~Service();

  const ServedModel& model() const { return model_; }
  const SchedulerOptions& options() const { return options_; }
  Encoder* encoder() { return encoder_.get(); }  // nullptr: the model writes text
  Scheduler& scheduler();                        // throws ApiError if the model is an encoder
  SchedulerLoad load() const;
  double seconds_until_begun() const;  // Scheduler's; 0 for an encoder
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  ResponseStore& responses() { return *responses_; }
  Sessions& sessions(int key) const;  // of this API key (its number); throws ApiError if there are none

  // New requests get 503 from now on.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  // True after an exception ended the scheduler's thread (it is logged); no request can be served then.
  bool failed() const { return failed_; }
  bool cancelled() const { return cancelled_; }  // by cancel_all()

  // The scheduler requests of one HTTP request in progress. cancel_all() cancels those of all tickets.
  class Ticket {
   public:
    explicit Ticket(Service& service);
    ~Ticket();  // cancels requests that still run
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    void submit(Request request, std::shared_ptr<RequestListener> listener);
    void cancel();

   private:
    Service& service_;
    std::vector<std::uint64_t> ids_;  // guarded by the service's mutex
    friend class Service;
  };
  bool wait_until_idle(std::chrono::milliseconds patience);  // false: requests still run
  void cancel_all();

 private:
  ServedModel model_;
  SchedulerOptions options_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::shared_ptr<SessionFolders> sessions_;
  std::shared_ptr<ResponseStore> responses_;
  std::shared_ptr<Encoder> encoder_;  // one of these
  std::unique_ptr<Scheduler> scheduler_;
  std::atomic<bool> closed_ = false, failed_ = false, cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::set<Ticket*> tickets_;
  std::jthread thread_;  // declared last: it uses the members above
};

}  // namespace palimpsest
