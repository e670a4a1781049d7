// What the connections share: the scheduler and its thread, the model's name and words, the numbers, who is served.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "palimpsest/engine/scheduler.h"
#include "palimpsest/server/completion_request.h"
#include "palimpsest/server/metrics.h"
#include "palimpsest/server/sessions.h"

namespace palimpsest {

class Service {
 public:
  // `sessions`: nullptr, and none can be kept. Throws Error.
  Service(std::shared_ptr<Decoder> decoder, ServedModel model, const SchedulerOptions& options,
          std::unique_ptr<Sessions> sessions = nullptr);
  ~Service();

  const ServedModel& model() const { return model_; }
  Scheduler& scheduler() { return scheduler_; }
  const std::shared_ptr<Metrics>& metrics() const { return metrics_; }
  Sessions& sessions() const;  // throws ApiError if there are none

  // From now on nobody new is served: the routes answer 503.
  void close() { closed_ = true; }
  bool closed() const { return closed_; }
  // The scheduler's thread ended by an exception, which is logged: nobody will be answered any more.
  bool broken() const { return broken_; }

  // Those whose answers are being made. A ticket's ids are cancelled by cancel_all().
  class Ticket {
   public:
    explicit Ticket(Service& service);
    ~Ticket();  // cancels what is left of it
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    void submit(Request request, std::shared_ptr<RequestListener> listener);
    void cancel();

   private:
    Service& service_;
    std::vector<std::uint64_t> ids_;  // under the service's mutex
    friend class Service;
  };
  bool wait_until_idle(std::chrono::milliseconds patience);  // false: somebody is still served
  void cancel_all();

 private:
  ServedModel model_;
  std::shared_ptr<Metrics> metrics_ = std::make_shared<Metrics>();
  std::unique_ptr<Sessions> sessions_;
  Scheduler scheduler_;
  std::atomic<bool> closed_ = false, broken_ = false;
  std::mutex mutex_;
  std::condition_variable left_;
  std::set<Ticket*> tickets_;
  std::jthread thread_;  // the last: it uses what is above
};

}  // namespace palimpsest
