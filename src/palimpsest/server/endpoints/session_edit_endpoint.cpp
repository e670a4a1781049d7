#include "palimpsest/server/endpoints/session_edit_endpoint.h"

#include <httplib.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "palimpsest/engine/snapshot.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/reply_parts.h"
#include "palimpsest/server/request/json_fields.h"
#include "palimpsest/server/request/prompt_field.h"
#include "palimpsest/server/server_options.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

// Waits for the edited sequence, which comes from the scheduler's thread.
class EditListener final : public RequestListener {
 public:
  bool written(const SampledToken&) override { return false; }
  void kept(std::shared_ptr<const KeptSequence> sequence) override {
    const std::lock_guard lock(mutex_);
    kept_ = std::move(sequence);
  }
  void finished(Finish finish, const Usage& usage) override {
    const std::lock_guard lock(mutex_);
    finish_ = finish;
    usage_ = usage;
    changed_.notify_one();
  }
  bool done_within(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return finish_.has_value(); });
  }
  // After done_within() returned true.
  std::shared_ptr<const KeptSequence> take() { return std::move(kept_); }
  Finish finish() const { return *finish_; }
  const Usage& usage() const { return usage_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Finish> finish_;
  Usage usage_;
  std::shared_ptr<const KeptSequence> kept_;
};

std::string name_in(const std::string& name, const char* field) {
  if (!Sessions::is_name(name))
    fail_field(field, "'{}' is no session's name: 1 to 64 letters, digits, '.', '_' and '-'", name);
  return name;
}

EditMode mode_in(JsonFields& fields) {
  try {
    return parse_edit_mode(fields.text("mode", "reuse"));
  } catch (const Error& error) {
    fail_field("mode", "'mode': {}", error.what());
  }
}

}  // namespace

void edit_session(Service& service, Sessions& sessions, const ServerOptions& options, const httplib::Request& in,
                  httplib::Response& out) {
  const Json body = parse_json(in.body);
  JsonFields fields(body);
  const std::string name = name_in(in.matches[1], "session"), save = name_in(fields.text("save", name), "save");
  constexpr long long kMax = 1LL << 60;
  TextEdit edit;
  for (const char* field : {"first", "last"})
    if (fields.take(field) == nullptr) fail_field(field, "'{}' is missing: an edit replaces first to last - 1", field);
  edit.range = {fields.integer("first", 0, 0, kMax), fields.integer("last", 0, 0, kMax)};
  edit.mode = mode_in(fields);
  if (const Json* text = fields.take("text")) edit.tokens = read_prompt(*text, "text", service.model(), true);
  fields.end();

  Request request;
  request.resume = sessions.open(name, service.scheduler().decoder().model());
  request.method = request.resume->method();
  request.max_tokens = 0;
  request.edit = std::move(edit);
  request.reuse = Reuse::kNothing;
  request.keep = true;
  if (options.timeout > 0ms) request.deadline = Clock::now() + options.timeout;
  const auto listener = std::make_shared<EditListener>();
  Service::Ticket ticket(service);
  ticket.submit(std::move(request), listener);
  while (!listener->done_within(100ms)) {
    if (service.failed()) throw ApiError(500, "server_error", "internal error: see the server's log");
    if (in.is_connection_closed()) throw ApiError(499, "client_closed_request", "the client disconnected");
  }
  const Usage& usage = listener->usage();
  if (listener->finish() != Finish::kLength) throw error_of(listener->finish(), usage);
  Json answer = sessions.save(save, *listener->take());
  answer["usage"] = {{"prompt_tokens", usage.prompt_tokens}, {"evicted_tokens", usage.evicted}};
  log_fields()["session"] = save;
  log_fields()["prompt_tokens"] = usage.prompt_tokens;
  reply_json(answer, out);
}

}  // namespace palimpsest
