#include "palimpsest/server/reply/completion_exchange.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/reply/answer_listener.h"
#include "palimpsest/server/reply/memory_events.h"
#include "palimpsest/server/request/common_fields.h"
#include "palimpsest/text/reply_reader.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr auto kPollInterval = 100ms;   // interval at which an idle connection is checked
constexpr auto kAbortTime = 10s;        // a cancelled request ends with the step that is running
constexpr std::size_t kMaxEvents = 64;  // queued events per choice while the client reads slowly
constexpr std::size_t kUnbounded = ~std::size_t{0};

// One completion request in progress.
class Exchange {
 public:
  Exchange(std::shared_ptr<Service> service, CompletionRequest request, std::unique_ptr<ReplyWriter> writer,
           const ServerOptions& options)
      : service_(std::move(service)),
        request_(std::move(request)),
        writer_(std::move(writer)),
        ticket_(*service_),
        ping_interval_(options.ping_interval),
        count_(static_cast<int>(request_.prompts.size()) * request_.n),
        mailbox_(
            std::make_shared<Mailbox>(request_.stream ? kMaxEvents * static_cast<std::size_t>(count_) : kUnbounded)) {
    if (options.timeout > 0ms) request_.request.deadline = Clock::now() + options.timeout;
    readers_.assign(static_cast<std::size_t>(count_), ReplyReader(request_.format));
    submit();
  }

  // Waits for the complete answer. Throws ApiError.
  Json whole(const httplib::Request& http) {
    try {
      return read_whole(http);
    } catch (...) {
      abort();
      throw;
    }
  }

  // Writes the next chunks of the stream; false: the client disconnected. Calls sink.done() at the end.
  bool more(httplib::DataSink& sink) {
    if (!opened_ && !open(sink)) return false;
    for (take(); !arrived_.empty();) {
      const Event event = next();
      if (event.memory != nullptr) {
        if (!send(sink, writer_->memory(event.choice, memory_event(*event.memory, texts_)))) return false;
        continue;
      }
      if (event.progress) {
        const long long tokens = std::ssize(request_.prompts[static_cast<std::size_t>(event.choice / request_.n)]);
        if (!send(sink, writer_->progress(event.choice, *event.progress, tokens, ms_since_start()))) return false;
        continue;
      }
      count(event);
      if (const auto wrong = event.last ? end(event) : std::nullopt) {
        abort();
        log_fields()["error"] = wrong->log_text();
        if (!send(sink, writer_->error(*wrong))) return false;
        sink.done();
        return true;
      }
      const ReplyDelta delta = read(event);
      if (delta.empty() && event.logs.empty() && !event.last) continue;
      if (request_.timings) writer_->so_far(so_far_);
      const bool calls = readers_[event.choice].has_calls();
      if (!send(sink, writer_->piece(event, delta, calls, session_, open_ == 0 ? &usage_ : nullptr))) return false;
    }
    if (open_ > 0) return ping(sink);
    log();
    if (!send(sink, writer_->end(usage_))) return false;
    sink.done();
    return true;
  }

  // Call inside a catch block: reports the exception to the stream's client, unless even that fails.
  bool report_exception(httplib::DataSink& sink) noexcept {
    try {
      const ApiError error = current_error();
      if (send(sink, writer_->error(error))) sink.done();
      abort();
      log_fields()["error"] = error.log_text();
      return true;
    } catch (...) {
      return false;
    }
  }

  bool streams() const { return request_.stream; }
  const char* stream_type() const { return writer_->stream_type(); }

  // Cancels what still runs, waits until it has ended, and logs what it did.
  void abort() {
    ticket_.cancel();
    const auto end = Clock::now() + kAbortTime;
    while (open_ > 0 && Clock::now() < end && !service_->failed()) {
      if (arrived_.empty()) take();
      while (!arrived_.empty())
        if (const Event event = next(); event.last) account(event);
    }
    log();
  }

  void log() {
    Json& line = log_fields();
    line["prompt_tokens"] = usage_.prompt_tokens;
    line["cached"] = usage_.cached_tokens;
    if (usage_.disk_tokens > 0) line["from_disk"] = usage_.disk_tokens;
    if (usage_.reused_tokens > 0) line["reused"] = usage_.reused_tokens, line["edited"] = usage_.edited_tokens;
    line["tokens"] = usage_.completion_tokens;
    line["evicted"] = usage_.evicted_tokens;
    line["queue_ms"] = std::round(usage_.queue_ms * 100) / 100;
    line["ttft_ms"] = std::round(usage_.ttft_ms * 100) / 100;
    line["finish"] = finish_;
    line["stream"] = request_.stream;
    line["cache"] = request_.request.method.name;
  }

 private:
  Json read_whole(const httplib::Request& http) {
    std::vector<Choice> choices(static_cast<std::size_t>(count_));
    for (int i = 0; i < count_; ++i) choices[i].text = echo(i);
    while (open_ > 0) {
      for (take(); !arrived_.empty();) {
        Event event = next();
        Choice& choice = choices[event.choice];
        add(read(event), choice);
        std::ranges::move(event.logs, std::back_inserter(choice.logs));
        std::ranges::copy(event.tokens, std::back_inserter(choice.tokens));
        if (!event.last) continue;
        if (const auto wrong = end(event)) throw *wrong;
        choice.finish = event.finish;
        choice.stop_word = std::move(event.stop_word);
        choice.usage = std::move(event.usage);
      }
      if (http.is_connection_closed()) throw ApiError(499, "client_closed_request", "the client disconnected");
    }
    log();
    Json object = writer_->whole(choices, usage_);
    if (!session_.is_null()) object["session"] = session_;
    if (request_.verbose)  // as in llama-server
      object["__verbose"] = {{"prompt", service_->model().vocabulary->detokenize(request_.prompts.front(), true)}};
    return object;
  }

  void submit() {
    const std::uint32_t seed = request_.request.sampler.seed;
    SharedTokens given;  // the answers to one prompt share it
    for (int i = 0; i < count_; ++i) {
      Request one = request_.request;
      one.prompt = request_.prompts[i / request_.n];
      pin_prompt(one.method, std::ssize(one.prompt));
      // Answer 0 is the same for every `n`.
      if (seed != kRandomSeed) one.sampler.seed = (seed + static_cast<std::uint32_t>(i % request_.n)) % kRandomSeed;
      if (request_.echo_logs) {
        if (i % request_.n == 0) given = std::vector<TokenId>(one.prompt.begin() + 1, one.prompt.end());
        one.given = given;
        one.prompt = {*one.prompt.begin()};
        one.max_tokens += static_cast<long long>(one.given.size());
      }
      const bool begins_text = request_.echo_logs || (one.resume == nullptr &&
                                                      only_control_tokens(*service_->model().vocabulary, one.prompt));
      AnswerListener::Options options{
          .choice = i,
          .text = {.stop = request_.stop, .shown = request_.reply_tokens, .begins_text = begins_text},
          .logs = wants_logs(),
          .tokens = request_.tokens,
          .progress = request_.stream && request_.progress,
          .first = request_.echo_logs ? *one.prompt.begin() : -1};
      ticket_.submit(std::move(one), std::make_shared<AnswerListener>(service_->model().vocabulary, mailbox_,
                                                                      service_->metrics(), std::move(options)));
    }
    for (const auto& prompt : request_.prompts) usage_.prompt_tokens += std::ssize(prompt);
    open_ = count_;
  }

  void take() {
    Mailbox::Taken taken = mailbox_->take(kPollInterval);
    if (taken.was_full) service_->scheduler().wake();
    if (taken.events.empty() && service_->failed())
      throw ApiError(500, "server_error", "internal error: see the server's log");
    std::ranges::move(taken.events, std::back_inserter(arrived_));
  }

  Event next() {
    Event event = std::move(arrived_.front());
    arrived_.pop_front();
    return event;
  }

  // What is new in a choice with this event.
  ReplyDelta read(const Event& event) {
    ReplyReader& reader = readers_[event.choice];
    ReplyDelta delta = reader.put(event.text);
    if (!event.last) return delta;
    ReplyDelta rest = reader.finish(event.finish == Finish::kEnd);
    delta.content += rest.content;
    delta.reasoning += rest.reasoning;
    std::ranges::move(rest.calls, std::back_inserter(delta.calls));
    return delta;
  }

  void account(const Event& event) {  // for a finished choice
    --open_;
    usage_.completion_tokens += std::max(0LL, event.usage.tokens - given_of(event.choice));
    usage_.evicted_tokens += event.usage.evicted;
    usage_.drafts += event.usage.drafts;
    usage_.method = event.usage.method;
    if (event.choice % request_.n == 0) {  // count each prompt once
      usage_.cached_tokens += event.usage.cached;
      usage_.disk_tokens += event.usage.from_disk;
      usage_.reused_tokens += event.usage.reused;
      usage_.edited_tokens += event.usage.edited;
    }
    if (usage_.ttft_ms == 0) usage_.ttft_ms = event.usage.ttft_ms, usage_.queue_ms = event.usage.queue_ms;
    usage_.total_ms = std::max(usage_.total_ms, event.usage.total_ms);
  }

  // Accounts for a finished choice. Returns its error, if any.
  std::optional<ApiError> end(const Event& event) {
    account(event);
    const char* reason = finish_reason(event.finish);
    if (reason == nullptr) {
      ApiError error = error_of(event.finish, event.usage);
      finish_ = error.what();
      return error;
    }
    finish_ = reason;
    if (request_.save.empty()) return {};
    try {
      session_ = service_->sessions(request_.request.scope).save(request_.save, *event.kept);
    } catch (...) {
      return current_error();
    }
    return {};
  }

  bool open(httplib::DataSink& sink) {
    opened_ = true;
    if (!send(sink, writer_->begin())) return false;
    for (int i = 0; i < count_; ++i) {
      if (!send(sink, writer_->begin_choice(i))) return false;
      const ReplyDelta echoed{.content = echo(i), .reasoning = {}, .calls = {}};
      const Event event{.choice = i, .text = {}, .logs = {}};
      if (!echoed.empty() && !send(sink, writer_->piece(event, echoed, false, nullptr, nullptr))) return false;
    }
    return true;
  }

  // Something that clients ignore, so that proxies keep the connection of a long prompt.
  bool ping(httplib::DataSink& sink) {
    if (!sink.is_writable()) return false;
    if (ping_interval_ <= 0ms || Clock::now() - last_sent_ < ping_interval_) return true;
    return send(sink, writer_->ping());
  }

  bool send(httplib::DataSink& sink, const std::string& bytes) {
    last_sent_ = Clock::now();
    return bytes.empty() || sink.write(bytes.data(), bytes.size());
  }

  // For timings while the answer is written.
  void count(const Event& event) {
    if (event.written == 0) return;
    if (so_far_.completion_tokens == 0) so_far_.ttft_ms = ms_since_start();
    so_far_.prompt_tokens = usage_.prompt_tokens;
    so_far_.completion_tokens += event.written;
    so_far_.total_ms = ms_since_start();
  }
  double ms_since_start() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }

  std::string echo(int choice) const {
    return request_.echo.empty() ? std::string() : request_.echo[static_cast<std::size_t>(choice / request_.n)];
  }
  long long given_of(int choice) const {
    return request_.echo_logs ? std::ssize(request_.prompts[static_cast<std::size_t>(choice / request_.n)]) - 1 : 0;
  }
  bool wants_logs() const { return request_.request.top_logprobs >= 0; }

  std::shared_ptr<Service> service_;
  CompletionRequest request_;
  std::unique_ptr<ReplyWriter> writer_;
  Service::Ticket ticket_;
  std::chrono::milliseconds ping_interval_;
  Clock::time_point last_sent_ = Clock::now();
  int count_;
  std::shared_ptr<Mailbox> mailbox_;
  std::deque<Event> arrived_;
  std::vector<ReplyReader> readers_;  // of each choice
  TokenSplitter texts_{*service_->model().vocabulary};
  ReplyUsage usage_, so_far_;
  Clock::time_point start_ = Clock::now();
  Json session_;  // null until it is saved
  std::string finish_ = "abort";
  int open_ = 0;
  bool opened_ = false;
};

}  // namespace

ReplyHead reply_head(const HttpCall& call, bool chat, const char* prefix) {
  ReplyHead head{.chat = chat, .id = new_id(prefix), .model = call.model().name, .created = std::time(nullptr)};
  log_fields()["id"] = head.id;
  return head;
}

void run_completion(const HttpCall& call, CompletionRequest request, std::unique_ptr<ReplyWriter> writer) {
  request.request.scope = call.key();
  if (request.request.session.empty()) request.request.session = call.in.get_header_value("x-session-id");
  if (request.request.session.size() > kMaxSessionId)
    fail_field("x-session-id", "the header 'x-session-id' has {} bytes: give at most {}",
               request.request.session.size(), kMaxSessionId);
  if (!request.save.empty()) call.sessions();  // throws if sessions are disabled
  if (!request.restore.empty()) {
    request.request.resume = call.sessions().open(request.restore, call.service->scheduler().decoder().model());
    if (!request.has_cache) request.request.method = request.request.resume->method();
  }
  auto exchange = std::make_shared<Exchange>(call.service, std::move(request), std::move(writer), call.options);
  if (!exchange->streams()) return call.reply(exchange->whole(call.in));
  call.out.set_header("Cache-Control", "no-store");
  call.out.set_chunked_content_provider(
      exchange->stream_type(),
      [exchange](std::size_t, httplib::DataSink& sink) {
        try {
          return exchange->more(sink);
        } catch (...) {
          return exchange->report_exception(sink);
        }
      },
      [exchange](bool well) {
        try {
          if (!well) exchange->abort();
          log_now();
        } catch (...) {  // out of memory: the log line is lost
        }
      });
  log_later();
}

}  // namespace palimpsest
