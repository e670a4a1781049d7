#include "palimpsest/engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include <spdlog/spdlog.h>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/lent_sequence.h"
#include "palimpsest/engine/repeat.h"
#include "palimpsest/engine/snapshot.h"
#include "palimpsest/text/grammar/matcher.h"

namespace palimpsest {
namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

CacheOptions page_shape(const Decoder& decoder, const SchedulerOptions& options) {
  CacheOptions shape = decoder.cache_options();
  shape.geometry = shape.geometry.with_types(options.cache_type.key, options.cache_type.value);
  shape.page_size = options.page_size;
  return shape;
}

// The message of the exception being handled, after `beginning`; shorter if there is no memory for it.
std::string exception_message(const char* beginning) noexcept {
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      return std::string(beginning) + "there is no memory for it: try again later";
    } catch (const std::exception& e) {
      return std::string(beginning) + e.what();
    } catch (...) {
      return std::string(beginning) + "unknown error";
    }
  } catch (...) {
    return "no memory";
  }
}

}  // namespace

struct Scheduler::JobShare : StepShare {
  Job* job = nullptr;
};

struct Scheduler::Job {
  std::uint64_t id = 0;
  Request request;
  std::shared_ptr<RequestListener> listener;
  std::size_t need = 0, beside_pages = 0;  // reserved bytes; of them, all but keys and values
  Clock::time_point submitted = Clock::now();
  Usage usage;
  std::shared_ptr<const MethodPlan> plan;
  std::unique_ptr<Sequence> sequence;  // nullptr until admitted
  std::optional<PrefixKey> rule;       // nullopt for resumed sequences
  std::unique_ptr<Sampler> sampler;
  TokenId next = -1;  // the token generated last
  std::vector<std::pair<TokenId, float>> top;
  std::vector<TokenId> order;             // [vocabulary] scratch: to find the likeliest tokens
  long long evicted_before = 0;           // tokens that the snapshot's cache had evicted
  std::shared_ptr<SnapshotLoad> loading;  // while set it owns the sequence and its reserved bytes
  std::optional<Finish> over;
  bool overtook = false;  // admitted before the first of the queue

  JobShare share;
  bool begun = false;  // takes part in this step
  bool key = false;    // this step's tokens are of the prompt

  bool in_prompt() const { return sequence->stage() == Sequence::Stage::kPrompt; }
};

Scheduler::Scheduler(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
                     const SchedulerOptions& options)
    : decoder_(std::move(decoder)), vocabulary_(std::move(vocabulary)), options_(options), loop_(decoder_) {
  static_cast<void>(plan_of({.prompt = {}, .method = {}}));  // throws where no method can share steps and pages
  if (options.chunk < 1 || options.max_sequences < 1 || options.max_queue < 1)
    fail("chunks of {} tokens, {} sequences, a queue of {}: give at least 1 of each", options.chunk,
         options.max_sequences, options.max_queue);
  if (options.step_tokens == 0) options_.step_tokens = std::max(kDefaultChunk, options.max_sequences + options.chunk);
  if (options_.step_tokens < options.max_sequences + options.chunk)  // else a prompt might never get a chunk
    fail("a step of {} tokens is too small for {} sequences and a chunk of {}: give at least {}", options.step_tokens,
         options.max_sequences, options.chunk, options.max_sequences + options.chunk);
  if (vocabulary_ != nullptr) repeat_ = repeat_instruction(*vocabulary_);
  const Cache probe(page_shape(*decoder_, options));  // throws for an impossible shape
  pool_ = std::make_shared<PagePool>(page_bytes(probe.view(probe.geometry().layer_of(0))));
  pool_->set_limit(options.pool_bytes / pool_->page_bytes(), [this] { return prefixes_.evict_one(); });
  load_.pool_bytes = options.pool_bytes;
  running_.reserve(static_cast<std::size_t>(options.max_sequences));  // so that steps do not allocate
  prompts_.reserve(running_.capacity());
  group_.reserve(running_.capacity());
}

Scheduler::~Scheduler() {
  for (auto& job : running_) finish(*job, Finish::kCancelled);
  for (auto& job : queue_) finish(*job, Finish::kCancelled);
}

SessionOptions Scheduler::options_of(const Request& request) const {
  SessionOptions options;
  options.method = request.method;
  options.cache_type = options_.cache_type;
  options.page_size = options_.page_size;
  options.chunk = options_.chunk;
  options.repeat = repeat_;
  return options;
}

std::shared_ptr<const MethodPlan> Scheduler::plan_of(const Request& request) const {
  const SessionOptions options = options_of(request);
  PlanTarget target = plan_target(*decoder_, options);
  target.shares_steps = target.shares_pages = true;
  return std::make_shared<MethodPlan>(options.method, std::move(target));
}

// Upper bound of the request's memory. For a resumed sequence: the snapshot's pages plus those of the new tokens alone.
PlanBytes Scheduler::bytes_of(const Request& request, const MethodPlan& plan) {
  const auto prompt = static_cast<long long>(request.prompt.size());
  PlanBytes bytes = plan.bytes(prompt, prompt + request.max_tokens);
  if (request.resume != nullptr) bytes.pages += request.resume->bytes();
  return bytes;
}

std::uint64_t Scheduler::submit(Request request, std::shared_ptr<RequestListener> listener) {
  assert(listener != nullptr);
  const Hyperparameters& hyper = decoder_->model().hyper();
  const Snapshot* const before = request.resume.get();
  const TokenId unread = before == nullptr ? -1 : before->text().unread;
  const bool as_it_was = before != nullptr && request.prompt.empty();
  if (request.prompt.empty() && unread < 0)
    fail("{}", before == nullptr ? "the prompt is empty: give at least one token"
                                 : "the saved text has ended: give a prompt");
  if (as_it_was && !request.sampler.grammar.empty()) fail("a grammar applies to a new answer: give a prompt");
  for (const TokenId token : request.prompt)
    if (token < 0 || token >= hyper.vocabulary)
      fail("token {} of the prompt is not in the model's vocabulary of {}", token, hyper.vocabulary);
  if (request.max_tokens < 1) fail("max_tokens is {}: give at least 1", request.max_tokens);
  const auto all = static_cast<long long>(request.prompt.size()) + request.max_tokens;
  if (hyper.learned_positions > 0 && all > hyper.learned_positions + 1)
    fail("{} prompt tokens and {} to generate exceed the {} learned positions of this model", request.prompt.size(),
         request.max_tokens, hyper.learned_positions);
  if (!request.sampler.grammar.empty() && vocabulary_ == nullptr) fail("a grammar needs a model with a vocabulary");

  auto job = std::make_unique<Job>();
  job->usage.prompt_tokens = static_cast<long long>(request.prompt.size());
  const bool reads_it = unread >= 0 && !as_it_was;  // before the prompt
  if (reads_it) request.prompt.insert(request.prompt.begin(), unread);
  job->plan = plan_of(request);
  const PlanBytes bytes = bytes_of(request, *job->plan);
  job->need = bytes.total();
  job->beside_pages = bytes.total() - bytes.pages;
  if (job->need > options_.pool_bytes)
    fail(
        "the request needs up to {} MiB of cache and tables; all requests together have {}: choose a smaller budget, a "
        "shorter prompt or a smaller max_tokens",
        (job->need + (1 << 20) - 1) >> 20, options_.pool_bytes >> 20);
  if (before == nullptr) job->rule.emplace(*job->plan);
  job->sampler = std::make_unique<Sampler>(request.sampler, vocabulary_.get(), hyper.vocabulary);
  for (const TokenId token : std::span(request.prompt).subspan(reads_it ? 1 : 0)) job->sampler->accept(token);
  if (before != nullptr) before->check(*job->plan);
  if (as_it_was) before->resume(*job->sampler);
  if (as_it_was) job->next = unread;
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->share.job = job.get();

  const std::lock_guard lock(mutex_);
  if (static_cast<int>(queue_.size()) >= options_.max_queue)
    throw QueueFull(fmt::format("{} requests are waiting: try again later", queue_.size()));
  const std::uint64_t id = job->id = ++last_id_;
  queue_.push_back(std::move(job));
  load_.waiting = static_cast<int>(queue_.size());
  woken_ = true;
  changed_.notify_one();
  return id;
}

void Scheduler::cancel(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  cancelled_.insert(id);
  woken_ = true;
  changed_.notify_one();
}

void Scheduler::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_one();
}

SchedulerLoad Scheduler::load() const {
  const std::lock_guard lock(mutex_);
  return load_;
}

// Calls the listener, which may throw anything.
void Scheduler::finish(Job& job, Finish finish, std::string error) noexcept {
  assert(!job.over);
  if (job.sequence != nullptr) {
    const Cache& cache = job.sequence->cache();
    job.usage.evicted = cache.evicted() - job.evicted_before;
    job.usage.cache_tokens = cache.occupied();
    job.usage.cache_bytes_peak = cache.bytes_peak();
  }
  if (job.request.keep && (finish == Finish::kEnd || finish == Finish::kStopped || finish == Finish::kLength)) {
    try {
      // An end-of-text token is never read.
      SnapshotText text{.tokens = {}, .unread = finish == Finish::kEnd ? -1 : job.next};
      auto kept = std::make_shared<const KeptSequence>(decoder_, std::move(job.sequence), std::move(job.sampler),
                                                       std::move(text), job.need, returns_);
      job.need = 0;
      job.listener->kept(std::move(kept));
    } catch (...) {
      finish = Finish::kFailed;
      error = exception_message("the session was not saved: ");
    }
  }
  job.over = finish;
  job.usage.total_ms = ms_since(job.submitted);
  job.usage.error = std::move(error);
  try {
    job.listener->finished(finish, job.usage);
  } catch (const std::exception& e) {
    spdlog::error("request {}: its listener failed at the end: {}", job.id, e.what());
  } catch (...) {
  }
}

// Ends the request with the exception being handled.
void Scheduler::fail_job(Job& job) noexcept {
  try {
    throw;
  } catch (const GrammarError&) {
    job.usage.invalid_request = true;
  } catch (...) {
  }
  finish(job, Finish::kFailed, exception_message(""));
}

// Removes a cancelled or late request from the queue; nullptr: none.
std::unique_ptr<Scheduler::Job> Scheduler::take_cancelled(const std::unordered_set<std::uint64_t>& cancelled,
                                                          Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  const auto gone = std::ranges::find_if(queue_, [&](const auto& job) {
    return cancelled.contains(job->id) || (job->request.deadline && now >= *job->request.deadline);
  });
  if (gone == queue_.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(*gone);
  queue_.erase(gone);
  ++load_.finished[static_cast<int>(cancelled.contains(job->id) ? Finish::kCancelled : Finish::kDeadline)];
  return job;
}

void Scheduler::end_cancelled() {
  const auto now = Clock::now();
  std::unordered_set<std::uint64_t> cancelled;
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    cancelled.swap(cancelled_);
  }
  const auto how = [&](const Job& job) { return cancelled.contains(job.id) ? Finish::kCancelled : Finish::kDeadline; };
  while (const auto job = take_cancelled(cancelled, now)) finish(*job, how(*job));
  for (auto& job : running_)
    if (cancelled.contains(job->id) || (job->request.deadline && now >= *job->request.deadline))
      finish(*job, how(*job));
}

// The request to admit next: the first of the queue. If it does not fit, the next one that fits may overtake it, unless
// the first one would fit without the running requests that overtook it: so the number of overtakers is bounded. One
// eighth of max_sequences is kept for prompts of one chunk at most.
std::deque<std::unique_ptr<Scheduler::Job>>::iterator Scheduler::next_of_queue() {
  struct Held {
    std::size_t bytes = 0;
    int sequences = 0, long_prompts = 0;
  };
  const auto is_long = [this](const Job& job) {
    return job.request.prompt.size() > static_cast<std::size_t>(options_.chunk);
  };
  const auto fits = [&](const Job& job, const Held& held) {
    return held.bytes + job.need <= options_.pool_bytes && held.sequences < options_.max_sequences &&
           (!is_long(job) || held.long_prompts < options_.max_sequences - options_.max_sequences / 8);
  };
  Held all, without_overtakers;
  for (const auto& job : running_)
    for (Held* held : {&all, &without_overtakers}) {
      if (held == &without_overtakers && job->overtook) continue;
      held->bytes += job->need;
      ++held->sequences;
      held->long_prompts += is_long(*job) ? 1 : 0;
    }
  if (queue_.empty() || fits(*queue_.front(), all)) return queue_.begin();
  if (fits(*queue_.front(), without_overtakers)) return queue_.end();
  return std::find_if(queue_.begin() + 1, queue_.end(), [&](const auto& job) { return fits(*job, all); });
}

std::unique_ptr<Scheduler::Job> Scheduler::take_next() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Job> job;
  if (const auto next = next_of_queue(); next != queue_.end()) {
    const bool overtakes = next != queue_.begin();
    if (!overtakes)
      for (auto& other : running_) other->overtook = false;
    job = std::move(*next);
    job->overtook = overtakes;
    queue_.erase(next);
    load_.reserved_bytes += job->need;
    if (options_.prefix_bytes > 0 && job->rule) load_.prefix_queries += job->usage.prompt_tokens;
  }
  load_.waiting = static_cast<int>(queue_.size());
  load_.running = static_cast<int>(running_.size()) + (job == nullptr ? 0 : 1);
  load_.running_peak = std::max(load_.running_peak, load_.running);
  return job;
}

void Scheduler::admit() {
  while (auto next = take_next()) {
    Job& job = *next;
    running_.push_back(std::move(next));
    job.usage.queue_ms = ms_since(job.submitted);
    try {
      make_sequence(job);
      continue_from_prefix(job);  // before limit_prefixes() evicts prefixes: this one's pages are then shared
      limit_prefixes();
      if (job.request.resume != nullptr) begin_to_load(job);
    } catch (...) {
      fail_job(job);
    }
  }
}

// Nothing is allocated for a request before its bytes are reserved.
void Scheduler::make_sequence(Job& job) {
  job.sequence = std::make_unique<Sequence>(*decoder_, options_of(job.request), job.plan, workers_, pool_);
  job.share.sequence = job.sequence.get();
  if (!job.request.prompt.empty()) job.sequence->read(job.request.prompt);
}

// Prefixes use only memory that is not reserved: their tables are accounted for here; their pages are freed when the
// pool runs out of pages.
void Scheduler::limit_prefixes() {
  while (load_.reserved_bytes + prefixes_.bytes_beside_pages() > options_.pool_bytes && prefixes_.evict_one()) {
  }
  std::size_t beside = prefixes_.bytes_beside_pages();
  for (const auto& job : running_) beside += job->beside_pages;
  pool_->set_limit((options_.pool_bytes - beside) / pool_->page_bytes(), [this] { return prefixes_.evict_one(); });
  pool_->reserve(0);
}

void Scheduler::begin_to_load(Job& job) {
  job.loading = loader_.begin(std::move(job.request.resume), std::move(job.sequence), job.need);
  job.need = 0;
}

bool Scheduler::advance_loads() {
  bool waits = false;
  for (auto& job : running_) {
    if (job->over || job->loading == nullptr) continue;
    try {
      if (auto sequence = loader_.advance(job->loading))
        restore(*job, std::move(sequence));
      else
        waits = true;
    } catch (...) {
      fail_job(*job);
    }
  }
  return waits;
}

// The sequence was loaded from its snapshot.
void Scheduler::restore(Job& job, std::unique_ptr<Sequence> sequence) {
  job.need = job.loading->reserved();
  job.loading.reset();
  job.sequence = std::move(sequence);
  job.share.sequence = job.sequence.get();
  if (job.request.prompt.empty())
    job.sequence->read(job.next);
  else
    job.sequence->read(job.request.prompt);
  job.evicted_before = job.sequence->cache().evicted();
  const int learned = decoder_->model().hyper().learned_positions;
  const auto all = job.sequence->cache().next() + std::ssize(job.request.prompt) + job.request.max_tokens;
  if (learned > 0 && all > learned + 1)
    fail("{} tokens in total exceed the {} learned positions of this model", all, learned);
}

void Scheduler::continue_from_prefix(Job& job) {
  if (!job.rule || !job.in_prompt()) return;
  const std::size_t before = job.sequence->tokens_read();
  Cache* kept = prefixes_.find(*job.rule, job.request.prompt, before);
  if (kept == nullptr) return;
  job.sequence->continue_from(*kept);
  const auto read = static_cast<std::size_t>(kept->next());
  job.usage.cached += static_cast<long long>(read - before);
  prefix_hits_ += static_cast<long long>(read - before);
  job.sequence->skip(read);
}

// Whether another job reads the same chunk in this step: then `job` can continue from its prefix in the next one.
bool Scheduler::read_by_another(const Job& job) const {
  if (options_.prefix_bytes == 0 || !job.rule || !job.in_prompt()) return false;
  return std::ranges::any_of(running_, [&](const auto& other) {
    if (!other->rule || !other->begun || !other->in_prompt()) return false;
    const auto& prompt = other->request.prompt;
    const std::size_t from = other->sequence->tokens_read(), end = from + other->share.work.tokens.size();
    return end < prompt.size() && from == job.sequence->tokens_read() && end < job.request.prompt.size() &&
           other->request.method == job.request.method &&
           std::equal(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(end), job.request.prompt.begin());
  });
}

// Adds `job` to this step.
void Scheduler::begin(Job& job) noexcept {
  job.key = job.in_prompt();
  job.begun = StepLoop::begin(job.share);
  if (!job.begun) fail_share(job);
}

// Every decoding sequence gets one token. Prompts: fewest tokens left first, so that a short one does not wait for long
// ones; but the oldest goes first if it got nothing in the last step, so it gets at least every other chunk. A chunk
// that does not fit waits for a later step: it is never cut, so results do not depend on other requests.
void Scheduler::share_out() {
  int left = options_.step_tokens;
  for (auto& job : running_) {
    job->begun = false;
    if (job->over || job->loading || job->sequence->stage() != Sequence::Stage::kDecode || !job->listener->ready())
      continue;
    begin(*job);
    --left;
  }
  prompts_.clear();
  for (auto& job : running_)
    if (!job->over && !job->loading && !job->begun && job->sequence->stage() != Sequence::Stage::kDecode)
      prompts_.push_back(job.get());
  if (prompts_.empty()) return;
  Job* const oldest = prompts_.front();
  std::ranges::sort(prompts_, {}, [&](const Job* job) {
    const bool first = job == oldest && job->id == passed_over_;
    return std::pair(first ? std::size_t{0} : job->sequence->tokens_left(), job->id);
  });
  for (Job* job : prompts_) {
    try {
      continue_from_prefix(*job);  // another sequence may have kept a longer prefix since
    } catch (...) {
      fail_job(*job);
      continue;
    }
    if (static_cast<int>(job->sequence->tokens_next()) > left || read_by_another(*job)) continue;
    begin(*job);
    left -= static_cast<int>(job->share.work.tokens.size());
  }
  passed_over_ = oldest->begun || oldest->over ? 0 : oldest->id;
}

// After the model's step.
void Scheduler::finish_step(Job& job) noexcept {
  if (job.share.failure) return fail_share(job);
  try {
    if (!job.share.logits.empty())
      advance(job, job.share.logits);
    else if (job.rule && job.in_prompt())
      keep_prefix(job);
  } catch (...) {  // also from the sampler: an unsatisfiable grammar, NaN logits
    fail_job(job);
  }
}

void Scheduler::fail_share(Job& job) noexcept {
  try {
    std::rethrow_exception(std::exchange(job.share.failure, nullptr));
  } catch (...) {
    fail_job(job);
  }
}

// Keeps the prefix for other requests; without memory it does nothing.
void Scheduler::keep_prefix(Job& job) noexcept {
  try {
    prefixes_.keep(*job.rule, std::span(job.request.prompt).first(job.sequence->tokens_read()), job.sequence->cache(),
                   options_.prefix_bytes);
    limit_prefixes();
  } catch (...) {
  }
}

void Scheduler::advance(Job& job, std::span<const float> logits) {
  const Request& request = job.request;
  Written written;
  double log_sum = 0;
  if (request.top_logprobs >= 0) {
    const float top = *std::ranges::max_element(logits);
    for (const float logit : logits) log_sum += std::exp(static_cast<double>(logit) - top);
    log_sum = top + std::log(log_sum);
    auto& order = job.order;
    order.resize(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto max = std::min<std::ptrdiff_t>(request.top_logprobs, std::ssize(order));
    std::ranges::partial_sort(order, order.begin() + max, std::greater(), [&](TokenId t) { return logits[t]; });
    job.top.clear();
    for (std::ptrdiff_t i = 0; i < max; ++i)
      job.top.emplace_back(order[i], static_cast<float>(logits[order[i]] - log_sum));
    written.top_logprobs = job.top;
  }
  written.token = job.next = job.sampler->sample(logits);
  if (request.top_logprobs >= 0) written.logprob = static_cast<float>(logits[written.token] - log_sum);
  written.end = vocabulary_ != nullptr && !request.ignore_end && vocabulary_->is_end(written.token);
  if (job.usage.tokens++ == 0) job.usage.ttft_ms = ms_since(job.submitted);
  const bool more = job.listener->written(written);
  if (written.end)
    finish(job, Finish::kEnd);
  else if (!more)
    finish(job, Finish::kStopped);
  else if (job.usage.tokens == request.max_tokens)
    finish(job, Finish::kLength);
  else
    job.sequence->read(job.next);
}

void Scheduler::remove_finished() {
  const std::size_t returned = returns_->collect();
  const std::lock_guard lock(mutex_);
  load_.reserved_bytes -= returned;
  int ended = 0;
  for (auto& job : running_) {
    if (!job->over) continue;
    ++ended;
    load_.reserved_bytes -= job->need;
    load_.evicted += job->usage.evicted;
    ++load_.finished[static_cast<int>(*job->over)];
    job.reset();
  }
  std::erase(running_, nullptr);
  if (ended > 0) limit_prefixes();
  const auto now = Clock::now();
  if (ended > 0 && load_.waiting > 0) {
    const double each = std::chrono::duration<double>(now - last_end_).count() / ended;
    double& mean = load_.seconds_per_request;
    mean = mean == 0 ? each : 0.9 * mean + 0.1 * each;
  }
  if (ended > 0 || load_.waiting == 0) last_end_ = now;
  load_.running = static_cast<int>(running_.size());
  load_.prefix_hits = prefix_hits_;
  load_.prefix_bytes = prefixes_.bytes();
  load_.used_bytes = pool_->bytes_in_use() - prefixes_.bytes_of_pages();
  load_.copied_bytes = static_cast<long long>(pool_->pages_copied() * pool_->page_bytes());
  load_.peak_bytes = pool_->bytes_peak();
}

bool Scheduler::step() {
  end_cancelled();
  remove_finished();
  admit();
  const bool loading = advance_loads();
  share_out();
  long long prompt = 0, written = 0;
  bool stepped = false;
  for (const Rotation rotation : {Rotation::kNever, Rotation::kOnWrite, Rotation::kOnRead, Rotation::kMaterialized}) {
    group_.clear();
    for (auto& job : running_)
      if (job->begun && !job->over && job->sequence->rule().rotation == rotation) group_.push_back(&job->share);
    if (group_.empty()) continue;
    stepped = true;
    loop_.run(group_, [&](StepShare& share) {
      Job& job = *static_cast<JobShare&>(share).job;
      if (job.key) prompt += static_cast<long long>(share.work.tokens.size());
      written -= job.usage.tokens;
      finish_step(job);
      written += job.usage.tokens;
    });
  }
  const bool ended = std::ranges::any_of(running_, [](const auto& job) { return job->over.has_value(); });
  remove_finished();
  std::unique_lock lock(mutex_);
  if (loading && !stepped && !ended) changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return woken_; });
  if (stepped) ++load_.steps;
  load_.prompt_tokens += prompt;
  load_.tokens += written;
  return stepped || ended || loading;
}

void Scheduler::run(std::stop_token stop) {
  using namespace std::chrono_literals;
  while (!stop.stop_requested()) {
    if (step()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, 20ms, [&] { return woken_; });  // no event announces a deadline
  }
}

}  // namespace palimpsest
