// A load target: a scheduler in this process with its own thread, as the server has, without HTTP.
#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/load/load_run.h"

namespace palimpsest {

class SchedulerTarget final : public LoadTarget {
 public:
  // All requests use `method`. `vocabulary` tokenizes text prompts; may be nullptr. Throws Error.
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
  std::mutex mutex_;  // guards ids_ and broken_
  std::vector<std::uint64_t> ids_;
  std::exception_ptr broken_;
  std::jthread thread_;  // declared last: it uses the members above
};

}  // namespace palimpsest
