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
  if (pools != (request.max_tokens == 0) || request.max_tokens < 0)
    fail("max_tokens is {}: give {}", request.max_tokens, pools ? "0 for an embedding" : "at least 1");
  const auto all = static_cast<long long>(request.prompt.size()) + request.max_tokens;
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
  job->plan->check_request(std::ssize(request.prompt), std::ssize(request.prompt) + request.max_tokens);
  if (before == nullptr && options_.prefix_bytes > 0 && request.reuse != Reuse::kNothing)
    job->rule.emplace(*job->plan, request.scope);
  if (request.reuse == Reuse::kHistories) job->history = job->rule;
  PlanBytes bytes = bytes_of(request, *job->plan);
  if (job->history || Job::needs_text(request)) bytes.tables += text_bytes(all);
  if (request.memory) bytes.tables += MemoryLog::bytes(MemoryUpdate::kMaxChanges);
  job->need = bytes.total();
  job->beside_pages = bytes.total() - bytes.pages;
  if (job->need > options_.pool_bytes)
    fail(
        "the request needs up to {} MiB of cache and tables; all requests together have {}: choose a smaller budget, a "
        "shorter prompt or a smaller max_tokens",
        (job->need + (1 << 20) - 1) >> 20, options_.pool_bytes >> 20);
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
  const std::uint64_t id = job->id = last_id_ + 1;
  interrupts_.emplace(id, job->interrupt);
  try {
    queue_.push_back(std::move(job));
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
  const auto gone = std::ranges::find_if(queue_, [](const auto& job) { return job->how_interrupted().has_value(); });
  if (gone == queue_.end()) return nullptr;
  std::unique_ptr<Job> job = std::move(*gone);
  queue_.erase(gone);
  interrupts_.erase(job->id);
  ++load_.finished[static_cast<int>(*job->how_interrupted())];
  return job;
}

void Scheduler::end_cancelled() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
  }
  while (const auto job = take_cancelled()) finish(*job, *job->how_interrupted());
  for (auto& job : running_)
    if (const auto how = job->how_interrupted()) finish(*job, *how);
}

// Reads the token generated last, with at most `max` drafts. Returns how many the step has.
int Scheduler::begin_decode(Job& job, int max) noexcept {
  try {
    job.drafts = {};
    if (job.speculation) {
      job.drafts = job.speculation->draft(std::min<long long>(max, job.request.max_tokens - job.usage.tokens - 1));
      job.sequence->read(job.next, job.drafts);
    }
  } catch (...) {
    fail_job(job);
    return 0;
  }
  begin(job);
  return job.begun ? static_cast<int>(job.share.work.tokens.size()) - 1 : 0;
}

// Adds `job` to this step.
void Scheduler::begin(Job& job) noexcept {
  job.key = job.in_prompt();
  job.begun = StepLoop::begin(job.share);
  if (!job.begun) fail_share(job);
}

// Every decoding sequence gets one token, and drafts where the step has room beside a prompt's chunk. Prompts: fewest
// tokens left first, so that a short one does not wait for long ones; but the oldest goes first if it got nothing in
// the last step, so it gets at least every other chunk. A chunk that does not fit waits for a later step: it is never
// cut, so results do not depend on other requests.
void Scheduler::share_out() {
  int left = options_.step_tokens, drafts = left;
  for (auto& job : running_) {
    job->begun = false;
    if (job->over || job->loading) continue;
    drafts -= job->sequence->stage() == Sequence::Stage::kDecode ? 1 : options_.chunk;
  }
  for (auto& job : running_) {
    if (job->over || job->loading || job->sequence->stage() != Sequence::Stage::kDecode || !job->listener->ready())
      continue;
    const int read = begin_decode(*job, std::max(0, drafts));
    left -= 1 + read;
    drafts -= read;
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
    if (job.request.pooling != Pooling::kNone) {
      pool(job, job.share.logits);
    } else if (!job.share.logits.empty()) {
      if (job.usage.tokens == 0) keep_history(job, false);
      advance(job, job.share.logits);
    } else if (job.in_prompt()) {
      job.rule ? keep_prefix(job) : keep_history(job, true);
    }
  } catch (...) {  // also from the sampler: an unsatisfiable grammar, NaN logits
    fail_job(job);
  }
  if (job.memory && !job.over) report_memory(job, false);
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
    prefixes_.keep(*job.rule, job.request.prompt, job.sequence->tokens_read(), job.sequence->cache(),
                   options_.prefix_bytes);
    limit_prefixes();
  } catch (...) {
  }
}

// Keeps what the sequence has read; without memory it does nothing.
void Scheduler::keep_history(Job& job, bool in_prompt) noexcept {
  // A part of a prompt that is read twice is not enough: the second time begins at its beginning.
  if (!job.history || (in_prompt && job.sequence->repeats())) return;
  const auto read = static_cast<std::size_t>(job.sequence->cache().next());
  if (read > job.text.size()) return;  // longer than kMaxHistory
  try {
    prefixes_.keep_history(*job.history, std::span(job.text).first(read), *job.sequence, in_prompt,
                           options_.prefix_bytes);
    limit_prefixes();
  } catch (...) {
  }
}

// Pools the hidden states of a step; at the prompt's end the request ends.
void Scheduler::pool(Job& job, std::span<const float> hidden) {
  const auto width = static_cast<std::size_t>(decoder_->model().hyper().width);
  auto& pooled = job.pooled;
  pooled.resize(width);
  if (job.request.pooling == Pooling::kLast) {
    std::ranges::copy(hidden.last(width), pooled.begin());
  } else {  // the length is normalised: a sum is as good as a mean
    for (std::size_t i = 0; i < hidden.size(); ++i) pooled[i % width] += hidden[i];
  }
  if (job.sequence->tokens_read() < job.request.prompt.size()) return;
  const double length = std::sqrt(std::inner_product(pooled.begin(), pooled.end(), pooled.begin(), 0.0));
  if (!std::isfinite(length)) fail("the embedding is not a finite number: is the model file damaged?");
  std::vector<float> out;
  for (const double x : pooled) out.push_back(static_cast<float>(length > 0 ? x / length : x));
  job.listener->embedded(out);
  finish(job, Finish::kEnd);
}

// Samples the next token, and as long as it is the next draft, the token after it.
void Scheduler::advance(Job& job, std::span<const float> logits) {
  const auto width = static_cast<std::size_t>(decoder_->model().hyper().vocabulary);
  const int read = static_cast<int>(logits.size() / width) - 1;
  std::optional<Finish> end;
  int stood = 0;
  for (;; ++stood) {
    end = write_token(job, logits.subspan(static_cast<std::size_t>(stood) * width, width));
    if (end || stood == read || job.next != job.drafts[static_cast<std::size_t>(stood)]) break;
  }
  job.sequence->accept(stood);
  if (job.speculation) {
    job.speculation->verified(read, stood);
    job.usage.drafts = job.speculation->counts();
  }
  if (end)
    finish(job, *end);
  else
    job.sequence->read(job.next);
}

// Samples a token and gives it to the listener. Returns how the text ends with it.
std::optional<Finish> Scheduler::write_token(Job& job, std::span<const float> logits) {
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
  written.given = job.usage.tokens < static_cast<long long>(request.given.size());
  if (written.given) {
    job.next = request.given.begin()[job.usage.tokens];
    job.sampler->accept(job.next);
  } else {
    job.next = job.sampler->sample(logits);
  }
  written.token = job.next;
  if (request.top_logprobs >= 0) written.logprob = static_cast<float>(logits[written.token] - log_sum);
  written.end = !written.given && vocabulary_ != nullptr && !request.ignore_end && vocabulary_->is_end(written.token);
  if (job.speculation) job.speculation->append({&written.token, 1});
  if (job.text.size() < job.text.capacity()) job.text.push_back(written.token);
  if (job.usage.tokens++ == 0) job.usage.ttft_ms = ms_since(job.submitted);
  const bool more = job.listener->written(written);
  if (written.end) return Finish::kEnd;
  if (!more) return Finish::kStopped;
  if (job.usage.tokens == request.max_tokens) return Finish::kLength;
  return std::nullopt;
}

void Scheduler::remove_finished() {
  const std::size_t before = reserved_.size();
  returns_->collect([this](std::uint64_t id) { release(id); });
  for (const auto& job : running_)
    if (job->over && !job->lent()) release(job->id);
  const std::lock_guard lock(mutex_);
  int ended = 0;
  for (auto& job : running_) {
    if (!job->over) continue;
    ++ended;
    load_.evicted += job->usage.evicted;
    ++load_.finished[static_cast<int>(*job->over)];
    interrupts_.erase(job->id);
    job.reset();
  }
  std::erase(running_, nullptr);
  if (reserved_.size() != before) limit_prefixes();
  const auto now = Clock::now();
  if (ended > 0 && load_.waiting > 0) {
    const double each = std::chrono::duration<double>(now - last_end_).count() / ended;
    double& mean = load_.seconds_per_request;
    mean = mean == 0 ? each : 0.9 * mean + 0.1 * each;
  }
  if (ended > 0 || load_.waiting == 0) last_end_ = now;
  load_.running = static_cast<int>(running_.size());
  load_.prefix_hits = prefix_hits_;
  load_.history_hits = history_hits_;
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
    for (const StepResult result : {StepResult::kLogits, StepResult::kHidden}) {
      group_.clear();
      for (auto& job : running_)
        if (job->begun && !job->over && job->sequence->rule().rotation == rotation && job->share.work.result == result)
          group_.push_back(&job->share);
      if (group_.empty()) continue;
      stepped = true;
      loop_.run(group_, [&](StepShare& share) {
        Job& job = *static_cast<SchedulerShare&>(share).job;
        if (job.key) prompt += static_cast<long long>(share.work.tokens.size());
        written -= job.usage.tokens;
        finish_step(job);
        written += job.usage.tokens;
      });
    }
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
