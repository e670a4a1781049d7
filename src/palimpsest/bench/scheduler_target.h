// The scheduler in this process, with a thread of its own: what a server does without sockets.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "palimpsest/bench/load_run.h"
#include "palimpsest/engine/scheduler.h"

namespace palimpsest {

class SchedulerTarget final : public LoadTarget {
 public:
  // All requests have this method. `vocabulary` reads those that are text; may be nullptr. Throws Error.
  SchedulerTarget(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
                  const SchedulerOptions& options, const Method& method);
  ~SchedulerTarget() override;

  void send(const LoadRequest& request, std::shared_ptr<LoadListener> listener) override;
  LoadState state() override;
  LoadState peak() override;
  void cancel() override;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  Method method_;
  Scheduler scheduler_;
  std::mutex mutex_;  // of what follows
  std::vector<std::uint64_t> ids_;
  std::exception_ptr broken_;
  std::jthread thread_;  // the last: it uses what is above
};

}  // namespace palimpsest
