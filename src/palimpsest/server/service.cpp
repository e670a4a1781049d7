#include "palimpsest/server/service.h"

#include <algorithm>

#include "palimpsest/core/error.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/log.h"

namespace palimpsest {

Service::Service(std::shared_ptr<Decoder> decoder, ServedModel model, const SchedulerOptions& options,
                 std::shared_ptr<SessionFolders> sessions, std::size_t response_bytes)
    : Service(std::move(decoder), std::move(model), options, std::move(sessions),
              std::make_shared<ResponseStore>(response_bytes)) {}

Service::Service(std::shared_ptr<Decoder> decoder, ServedModel model, const SchedulerOptions& options,
                 std::shared_ptr<SessionFolders> sessions, std::shared_ptr<ResponseStore> responses)
    : model_(std::move(model)),
      options_(options),
      sessions_(std::move(sessions)),
      responses_(std::move(responses)),
      scheduler_(std::make_unique<Scheduler>(std::move(decoder), model_.vocabulary, options)) {
  const Hyperparameters& hyper = scheduler_->decoder().model().hyper();
  model_.width = hyper.width;
  model_.trained_context = hyper.trained_context;
  try {
    model_.auto_budget = scheduler_->resolved(parse_method(kAutoMethod)).budget;
  } catch (const Error&) {  // requests of this method are refused with the error
  }
  thread_ = std::jthread([this](const std::stop_token& stop) {
    try {
      scheduler_->run(stop);
    } catch (...) {
      failed_ = true;
      log_event("failed", {{"error", current_error().log_text()}}, false);
    }
  });
}

Service::Service(std::shared_ptr<Encoder> encoder, ServedModel model, const SchedulerOptions& options,
                 std::shared_ptr<ResponseStore> responses)
    : model_(std::move(model)), options_(options), responses_(std::move(responses)), encoder_(std::move(encoder)) {
  model_.encodes = true;
  model_.ranks = encoder_->pooling() == EncoderPooling::kRank;
  model_.width = encoder_->width();
  model_.trained_context = encoder_->context();
}

Service::~Service() = default;

Scheduler& Service::scheduler() {
  if (scheduler_ != nullptr) return *scheduler_;
  throw ApiError(501, "not_supported_error",
                 fmt::format("model '{}' is an encoder, which writes no text: {}", model_.name,
                             model_.ranks ? "it answers /v1/rerank" : "it answers /v1/embeddings and /v1/rerank"),
                 "model");
}

SchedulerLoad Service::load() const {
  if (scheduler_ != nullptr) return scheduler_->load();
  const Encoder::Load load = encoder_->load();
  SchedulerLoad out;
  out.running = std::min(load.callers, 1);
  out.waiting = load.callers - out.running;
  out.steps = load.batches;
  out.prompt_tokens = load.tokens;
  out.finished[static_cast<int>(Finish::kEnd)] = load.texts;
  return out;
}

double Service::seconds_until_begun() const {
  return scheduler_ == nullptr ? 0 : scheduler_->seconds_until_begun();
}

Sessions& Service::sessions(int key) const {
  return sessions_of(sessions_.get(), key);
}

Service::Ticket::Ticket(Service& service) : service_(service) {
  const std::lock_guard lock(service_.mutex_);
  service_.tickets_.insert(this);
}

Service::Ticket::~Ticket() {
  cancel();
  const std::lock_guard lock(service_.mutex_);
  service_.tickets_.erase(this);
  if (service_.tickets_.empty()) service_.idle_.notify_all();
}

void Service::Ticket::submit(Request request, std::shared_ptr<RequestListener> listener) {
  {
    const std::lock_guard lock(service_.mutex_);
    ids_.reserve(ids_.size() + 1);  // push_back after submit() must not throw
  }
  const std::uint64_t id = service_.scheduler().submit(std::move(request), std::move(listener));
  const std::lock_guard lock(service_.mutex_);
  ids_.push_back(id);
}

void Service::Ticket::cancel() {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(service_.mutex_);
    ids.swap(ids_);
  }
  for (const std::uint64_t id : ids) service_.scheduler().cancel(id);
}

bool Service::wait_until_idle(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, patience, [&] { return tickets_.empty(); });
}

void Service::cancel_all() {
  cancelled_ = true;
  const std::lock_guard lock(mutex_);
  for (const Ticket* ticket : tickets_)
    for (const std::uint64_t id : ticket->ids_) scheduler_->cancel(id);
}

}  // namespace palimpsest
