#include "palimpsest/engine/scheduler/scheduler.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include <spdlog/spdlog.h>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/sequence/released_sequence.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/engine/sequence/snapshot.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/text/grammar/matcher.h"

namespace palimpsest {
namespace {

CacheOptions page_shape(const Decoder& decoder, const SchedulerOptions& options) {
  CacheOptions shape = decoder.cache_options();
  shape.geometry = shape.geometry.with_types(options.cache_type.key, options.cache_type.value);
  shape.page_size = options.page_size;
  return shape;
}

// Max tokens that the model reads before it generates: the prompt, or what an edit reads, in mode exact perhaps the
// whole text.
long long tokens_of(const Request& request) {
  if (!request.edit) return std::ssize(request.prompt);
  const auto tokens = std::ssize(request.edit->tokens);
  return request.edit->mode == EditMode::kExact ? tokens + std::ssize(request.resume->text().tokens) : tokens;
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
  const CacheOptions shape = page_shape(*decoder_, options);
  pool_ = make_pool(shape);  // throws for an impossible shape
  pool_->set_limit(options.pool_bytes, [this] { return prefixes_.evict_one(); });
  load_.pool_bytes = options.pool_bytes;
  load_.page_size = options.page_size;
  std::size_t block = 0;  // a page of each head
  for (const std::size_t bytes : page_bytes_of_heads(shape)) block += bytes;
  load_.blocks = static_cast<long long>(options.pool_bytes / block);
  if (!options.disk.folder.empty()) {
    if (!decoder_->cache_options().pages) fail("caches on disk need keys and values in the CPU's memory");
    disk_ = std::make_shared<DiskCache>(options.disk, cache_fingerprint(decoder_->model()), vocabulary_);
    load_.disk_max_bytes = options.disk.max_bytes;
    disk_writer_ = std::make_unique<DiskWriter>(disk_, [this] { wake(); });
  }
  running_.reserve(static_cast<std::size_t>(options.max_sequences));  // so that steps do not allocate
  prompts_.reserve(running_.capacity());
  left_.reserve(running_.capacity());
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
  options.profile_file = options_.profile_file;
  options.page_size = options_.page_size;
  options.chunk = options_.chunk;
  options.draft_max = request.drafts.max;
  options.auto_memory = options_.auto_memory();
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
  const long long prompt = tokens_of(request);
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
  assert(!request.edit || (as_it_was && request.drafts.max == 0 && request.given.empty()));
  if (request.edit)
    for (const TokenId token : request.edit->tokens)
      if (token < 0 || token >= hyper.vocabulary)
        fail("token {} of the edit is not in the model's vocabulary of {}", token, hyper.vocabulary);
  if (request.prompt.empty() && unread < 0 && !request.edit)
    fail("{}", before == nullptr ? "the prompt is empty: give at least one token"
                                 : "the saved text has ended: give a prompt");
  if (as_it_was && request.sampler.constrained()) fail("a grammar applies to a new answer: give a prompt");
  for (const TokenId token : request.prompt)
    if (token < 0 || token >= hyper.vocabulary)
      fail("token {} of the prompt is not in the model's vocabulary of {}", token, hyper.vocabulary);
  for (const TokenId token : request.given)
    if (token < 0 || token >= hyper.vocabulary)
      fail("token {} of the text is not in the model's vocabulary of {}", token, hyper.vocabulary);
  if (!request.given.empty() && request.drafts.max > 0) fail("drafts and a given text exclude each other");
  if (request.memory && request.memory->layer >= 0)
    flat_head(hyper.geometry, request.memory->layer, request.memory->head);  // throws
  const bool pools = request.pooling != Pooling::kNone;
  assert(!pools || (before == nullptr && request.given.empty() && request.drafts.max == 0 && !request.keep &&
                    request.reuse == Reuse::kNothing));
  const bool generates = !pools && !request.edit;
  if (generates != (request.max_tokens > 0) || request.max_tokens < 0)
    fail("max_tokens is {}: give {}", request.max_tokens,
         generates ? "at least 1"
         : pools   ? "0 for an embedding"
                   : "0 for an edit");
  const long long all = tokens_of(request) + request.max_tokens;
  if (hyper.learned_positions > 0 && all > hyper.learned_positions + 1)
    fail("{} prompt tokens and {} to generate exceed the {} learned positions of this model", request.prompt.size(),
         request.max_tokens, hyper.learned_positions);
  if (request.sampler.constrained() && vocabulary_ == nullptr) fail("a grammar needs a model with a vocabulary");

  auto job = std::make_unique<Job>();
  job->usage.prompt_tokens = static_cast<long long>(request.prompt.size());
  const bool reads_it = unread >= 0 && !as_it_was;  // before the prompt
  if (reads_it) {
    std::vector<TokenId> tokens{unread};
    tokens.insert(tokens.end(), request.prompt.begin(), request.prompt.end());
    request.prompt = std::move(tokens);
  }
  job->plan = plan_of(request);
  job->usage.method = spell_short(job->plan->method());
  job->plan->check_request(tokens_of(request), tokens_of(request) + request.max_tokens);
  if (before == nullptr && options_.prefix_bytes > 0 && request.reuse != Reuse::kNothing)
    job->prefix_key.emplace(*job->plan, request.scope, request.session, request.pin);
  if (request.reuse == Reuse::kHistories) job->history = job->prefix_key;
  if (disk_ != nullptr && job->prefix_key) {
    job->disk_key = disk_->key_of(*job->prefix_key);
    job->on_disk = disk_->find(job->disk_key, request.prompt, job->history.has_value());
  }
  PlanBytes bytes = bytes_of(request, *job->plan);
  if (job->history || Job::needs_text(request)) bytes.tables += text_bytes(all);
  if (request.edit) bytes.tables += text_bytes(all);  // SchedulerJob::rest
  if (request.memory) bytes.tables += MemoryLog::bytes(MemoryUpdate::kMaxChanges);
  job->reserved_bytes = bytes.total();
  job->overhead_bytes = bytes.total() - bytes.pages;
  if (job->reserved_bytes > options_.pool_bytes)
    fail(
        "the request needs up to {} MiB of cache and tables; all requests together have {}: choose a smaller budget, a "
        "shorter prompt or a smaller max_tokens",
        (job->reserved_bytes + (1 << 20) - 1) >> 20, options_.pool_bytes >> 20);
  job->sampler = std::make_unique<Sampler>(request.sampler, vocabulary_.get(), hyper.vocabulary);
  for (const TokenId token : std::span(request.prompt).subspan(reads_it ? 1 : 0)) job->sampler->accept(token);
  if (before != nullptr) before->check(*job->plan);
  if (as_it_was) before->resume(*job->sampler);
  if (as_it_was) job->next = unread;
  job->request = std::move(request);
  job->listener = std::move(listener);
  job->share.job = job.get();
  job->interrupt = std::make_shared<Interrupt>(job->request.deadline);

  const std::lock_guard lock(mutex_);
  if (static_cast<int>(queue_.size()) >= options_.max_queue)
    throw QueueFull(fmt::format("{} requests are waiting: try again later", queue_.size()));
  const std::uint64_t id = last_id_ + 1;
  job->id = id;
  interrupts_.emplace(id, job->interrupt);
  try {
    const auto before = [](int priority, const auto& waiting) { return priority > waiting->request.priority; };
    queue_.insert(std::upper_bound(queue_.begin(), queue_.end(), job->request.priority, before), std::move(job));
  } catch (...) {
    interrupts_.erase(id);
    throw;
  }
  last_id_ = id;
  load_.waiting = static_cast<int>(queue_.size());
  woken_ = true;
  changed_.notify_one();
  return id;
}

void Scheduler::cancel(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  if (const auto of = interrupts_.find(id); of != interrupts_.end()) of->second->cancel();
  woken_ = true;
  changed_.notify_one();
}

void Scheduler::close_session(std::string session, int scope) {
  const std::lock_guard lock(mutex_);
  closed_sessions_.emplace_back(std::move(session), scope);
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

double Scheduler::seconds_until_begun() const {
  std::vector<TokensLeft> waiting;
  const std::lock_guard lock(mutex_);
  for (const auto& job : queue_) waiting.push_back(job->tokens_left());
  return wait_.seconds_until_begun(left_, waiting);
}

// Calls the listener, which may throw anything.
void Scheduler::finish(Job& job, Finish finish, std::string error) noexcept {
  assert(!job.over);
  if (job.sequence != nullptr) {
    const Cache& cache = job.sequence->cache();
    job.usage.evicted = cache.evicted_since(job.dropped_before);
    job.usage.cache_tokens = cache.occupied();
    job.usage.cache_bytes_peak = cache.bytes_peak();
  }
  const bool whole = finish == Finish::kEnd || finish == Finish::kStopped || finish == Finish::kLength;
  if (whole) report_memory(job, true);
  if (whole) keep_history(job, false);
  if (job.request.keep && whole) {
    try {
      // An end-of-text token is never read.
      SnapshotText text{.tokens = std::move(job.text), .unread = finish == Finish::kEnd ? -1 : job.next};
      if (std::ranges::find(text.tokens, -1) != text.tokens.end()) text.tokens.clear();
      auto kept = std::make_shared<const KeptSequence>(decoder_, std::move(job.sequence), std::move(job.sampler),
                                                       std::move(text), job.id, returns_);
      job.kept = true;
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
  } catch (const Interrupted&) {
    return finish(job, job.how_interrupted().value_or(Finish::kCancelled));
  } catch (const GrammarError&) {
    job.usage.invalid_request = true;
  } catch (...) {
  }
  finish(job, Finish::kFailed, exception_message(""));
}

// Removes a cancelled or late request from the queue; nullptr: none.
std::unique_ptr<Scheduler::Job> Scheduler::take_cancelled() {
  const std::lock_guard lock(mutex_);
  const auto interrupted =
      std::ranges::find_if(queue_, [](const auto& job) { return job->how_interrupted().has_value(); });
  if (interrupted == queue_.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(*interrupted);
  queue_.erase(interrupted);
  interrupts_.erase(job->id);
  ++load_.finished[static_cast<int>(*job->how_interrupted())];
  return job;
}

void Scheduler::end_cancelled() {
  std::vector<std::pair<std::string, int>> closed;
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    closed.swap(closed_sessions_);
  }
  for (const auto& [session, scope] : closed) prefixes_.close_session(session, scope);
  while (const auto job = take_cancelled()) finish(*job, *job->how_interrupted());
  for (auto& job : running_)
    if (const auto how = job->how_interrupted()) finish(*job, *how);
}

void Scheduler::remove_finished() {
  const std::size_t before = reserved_.size();
  returns_->collect([this](std::uint64_t id) { release(id); });
  for (const auto& job : running_)
    if (job->over && !job->released()) release(job->id);
  const std::lock_guard lock(mutex_);
  for (auto& job : running_) {
    if (!job->over) continue;
    load_.evicted += job->usage.evicted;
    wait_.ended(job->usage.tokens, *job->over == Finish::kEnd || *job->over == Finish::kStopped);
    ++load_.finished[static_cast<int>(*job->over)];
    interrupts_.erase(job->id);
    job.reset();
  }
  std::erase(running_, nullptr);
  if (reserved_.size() != before) limit_prefixes();
  left_.clear();
  for (const auto& job : running_) left_.push_back(job->tokens_left());
  load_.running = static_cast<int>(running_.size());
  load_.prefix_hits = prefix_hits_;
  load_.history_hits = history_hits_;
  load_.prefix_bytes = prefixes_.bytes();
  load_.used_bytes = pool_->bytes_in_use() - prefixes_.bytes_of_pages();
  for (const auto& job : running_)  // of devices
    if (!job->plan->cache().pages && job->sequence != nullptr)
      load_.used_bytes += job->sequence->cache().bytes_in_use();
  load_.copied_bytes = static_cast<long long>(pool_->bytes_copied());
  load_.peak_bytes = std::max({load_.peak_bytes, pool_->bytes_peak(), load_.used_bytes});
}

void Scheduler::run(std::stop_token stop) {
  using namespace std::chrono_literals;
  while (!stop.stop_requested()) {
    if (step()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, 20ms, [&] { return woken_; });  // no event announces a deadline
  }
  save_kept();
}

}  // namespace palimpsest
