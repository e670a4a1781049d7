#include "palimpsest/engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>
#include <numeric>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/occupancy.h"
#include "palimpsest/engine/repeat.h"
#include "palimpsest/engine/snapshot.h"

namespace palimpsest {
namespace {

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

CacheOptions page_shape(const Decoder& decoder, const SchedulerOptions& options) {
  CacheOptions shape = decoder.cache_options();
  shape.type = options.cache_type;
  shape.page_size = options.page_size;
  return shape;
}

}  // namespace

struct Scheduler::Job {
  std::uint64_t id = 0;
  Request request;
  std::shared_ptr<RequestListener> listener;
  std::size_t need = 0;  // bytes of pages that it may come to hold
  Clock::time_point submitted = Clock::now();
  Usage usage;

  std::unique_ptr<Sequence> sequence;
  std::optional<Reading> rule;  // of those that begin with their prompt
  std::unique_ptr<Sampler> sampler;
  std::size_t read = 0;  // tokens of the prompt that went through the model
  TokenId next = -1;     // the token that was written last, to be read
  std::vector<std::pair<TokenId, float>> top;
  std::vector<float> logits;     // of the prompt's last token, while the model repeats the prompt
  std::size_t repeated = 0;      // tokens of it
  long long evicted_before = 0;  // from the cache that was gone on from
  std::optional<Finish> over;

  // In this step.
  std::span<const TokenId> tokens;
  Moment moment = Moment::kDecode;

  bool reading() const { return read < request.prompt.size(); }
  bool repeating() const { return !logits.empty(); }
};

Scheduler::Scheduler(std::shared_ptr<Decoder> decoder, std::shared_ptr<const Vocabulary> vocabulary,
                     const SchedulerOptions& options)
    : decoder_(std::move(decoder)), vocabulary_(std::move(vocabulary)), options_(options) {
  if (!decoder_->cache_options().pages)
    fail("many requests at a time run on the CPU's own path: leave --portable and --device out");
  if (options.chunk < 1 || options.max_sequences < 1 || options.max_queue < 1)
    fail("chunks of {} tokens, {} sequences, a queue of {}: give at least 1 of each", options.chunk,
         options.max_sequences, options.max_queue);
  if (options.step_tokens == 0) options_.step_tokens = std::max(kDefaultChunk, options.max_sequences + options.chunk);
  if (options_.step_tokens < options.max_sequences + options.chunk)  // else a prompt might wait for ever
    fail("a step of {} tokens is too small for {} sequences and a chunk of {}: give at least {}", options.step_tokens,
         options.max_sequences, options.chunk, options.max_sequences + options.chunk);
  if (vocabulary_ != nullptr) repeat_ = repeat_instruction(*vocabulary_);
  const Cache probe(page_shape(*decoder_, options));  // throws for an impossible shape
  pool_ = std::make_shared<PagePool>(page_bytes(probe.view(0)));
  pool_->limit(options.pool_bytes / pool_->page_bytes(), [this] { return prefixes_.forget_one(); });
  workers_ = std::make_shared<Workers>(decoder_->threads());
  load_.pool_bytes = options.pool_bytes;
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

// The most that its pages will be, whatever is written. What it goes on from comes on top: its pages, and at most what
// the new tokens would take by themselves.
std::size_t Scheduler::need_of(const Request& request) const {
  const Hyperparameters& hyper = decoder_->model().hyper();
  const SessionOptions options = options_of(request);
  const CacheOptions cache =
      cache_options(options, decoder_->cache_options(), hyper.positions(), hyper.query_heads / hyper.kv_heads);
  if (cache.rotated_half)
    fail("rerotate=cached-half needs pages of another size than the other requests': use rerotate=fused");
  const auto prompt = static_cast<long long>(request.prompt.size());
  const auto budgets = head_budgets(options.method, hyper.layers, hyper.kv_heads, hyper.head_list);
  const Occupancies most = occupancies(options, hyper.positions(), prompt, prompt + request.max_tokens, budgets);
  const std::size_t before = request.resume == nullptr ? 0 : request.resume->bytes();
  return before + std::max(footprint(cache, most.reading).in_use(), footprint(cache, most.writing).in_use());
}

std::uint64_t Scheduler::submit(Request request, std::shared_ptr<RequestListener> listener) {
  assert(listener != nullptr);
  const Hyperparameters& hyper = decoder_->model().hyper();
  const Snapshot* const before = request.resume.get();
  const TokenId unread = before == nullptr ? -1 : before->text().unread;
  const bool as_it_was = before != nullptr && request.prompt.empty();
  if (request.prompt.empty() && unread < 0)
    fail("{}", before == nullptr ? "the prompt is empty: give at least one token"
                                 : "the text that is gone on from has ended: give a prompt");
  if (as_it_was && !request.sampler.grammar.empty())
    fail("a grammar begins with an answer, and a text that goes on where it was does not: give a prompt");
  for (const TokenId token : request.prompt)
    if (token < 0 || token >= hyper.vocabulary)
      fail("token {} of the prompt is not in the model's vocabulary of {}", token, hyper.vocabulary);
  if (request.max_tokens < 1) fail("max_tokens is {}: give at least 1", request.max_tokens);
  if (!request.method.cache)
    fail("method {} has no cache and reads its window anew: it cannot share steps", request.method.name);
  const auto all = static_cast<long long>(request.prompt.size()) + request.max_tokens;
  if (hyper.learned_positions > 0 && all > hyper.learned_positions + 1)
    fail("{} tokens of prompt and {} to write are more than the {} positions that this model has learned",
         request.prompt.size(), request.max_tokens, hyper.learned_positions);
  if (!request.sampler.grammar.empty() && vocabulary_ == nullptr) fail("a grammar needs a model with a vocabulary");

  auto job = std::make_unique<Job>();
  job->usage.prompt_tokens = static_cast<long long>(request.prompt.size());
  const bool reads_it = unread >= 0 && !as_it_was;  // with the prompt
  if (reads_it) request.prompt.insert(request.prompt.begin(), unread);
  job->need = need_of(request);
  if (job->need > options_.pool_bytes)
    fail(
        "the request may need {} MiB of cache and all requests together have {}: choose a smaller budget, a shorter "
        "prompt or a smaller max_tokens",
        (job->need + (1 << 20) - 1) >> 20, options_.pool_bytes >> 20);
  job->sequence = std::make_unique<Sequence>(*decoder_, options_of(request), workers_, pool_);
  if (before == nullptr) job->rule.emplace(*job->sequence);
  job->sampler = std::make_unique<Sampler>(request.sampler, vocabulary_.get(), hyper.vocabulary);
  for (const TokenId token : std::span(request.prompt).subspan(reads_it ? 1 : 0)) job->sampler->accept(token);
  if (before != nullptr) before->check(*job->sequence);
  if (as_it_was) {
    before->resume(*job->sampler);
    job->next = unread;
  }
  job->request = std::move(request);
  job->listener = std::move(listener);

  const std::lock_guard lock(mutex_);
  if (static_cast<int>(queue_.size()) >= options_.max_queue)
    throw QueueFull(fmt::format("{} requests wait already: try again later", queue_.size()));
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

void Scheduler::finish(Job& job, Finish finish, std::string error) {
  assert(!job.over);
  if (job.request.keep && (finish == Finish::kEnd || finish == Finish::kStopped || finish == Finish::kLength)) {
    // An end-of-text token is never read.
    const SnapshotText text{.tokens = {}, .unread = finish == Finish::kEnd ? -1 : job.next};
    try {
      job.listener->kept(pack_snapshot(decoder_->model(), *job.sequence, job.sampler.get(), text));
    } catch (const std::bad_alloc&) {
      finish = Finish::kFailed;
      error = "there is no memory to keep the sequence: try again later, or without";
    }
  }
  job.over = finish;
  const Cache& cache = job.sequence->cache();
  job.usage.evicted = cache.evicted() - job.evicted_before;
  job.usage.cache_tokens = cache.live();
  job.usage.cache_bytes_peak = cache.bytes_peak();
  job.usage.total_ms = ms_since(job.submitted);
  job.usage.error = std::move(error);
  job.listener->finished(finish, job.usage);
}

void Scheduler::end_some() {
  const auto now = Clock::now();
  std::unordered_set<std::uint64_t> cancelled;
  Jobs gone;  // from the queue
  {
    const std::lock_guard lock(mutex_);
    woken_ = false;
    cancelled.swap(cancelled_);
    const auto leaves = [&](const std::unique_ptr<Job>& job) {
      return cancelled.contains(job->id) || (job->request.deadline && now >= *job->request.deadline);
    };
    for (auto& job : queue_)
      if (leaves(job)) gone.push_back(std::move(job));
    std::erase(queue_, nullptr);
  }
  for (auto& job : gone) finish(*job, cancelled.contains(job->id) ? Finish::kCancelled : Finish::kDeadline);
  for (auto& job : running_) {
    if (cancelled.contains(job->id))
      finish(*job, Finish::kCancelled);
    else if (job->request.deadline && now >= *job->request.deadline)
      finish(*job, Finish::kDeadline);
  }
  const std::lock_guard lock(mutex_);
  for (const auto& job : gone) ++load_.finished[static_cast<int>(*job->over)];
}

// First come, first served: what does not fit yet is not overtaken.
void Scheduler::admit() {
  const std::lock_guard lock(mutex_);
  while (!queue_.empty() && static_cast<int>(running_.size()) < options_.max_sequences) {
    Job& first = *queue_.front();
    if (load_.promised_bytes + first.need > options_.pool_bytes) break;
    load_.promised_bytes += first.need;
    first.usage.queue_ms = ms_since(first.submitted);
    if (options_.prefix_bytes > 0 && first.rule) load_.prefix_queries += first.usage.prompt_tokens;
    go_on_from_kept(first);  // before kept beginnings give way to others: this one's pages stay then
    running_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  load_.waiting = static_cast<int>(queue_.size());
  load_.running = static_cast<int>(running_.size());
  load_.running_peak = std::max(load_.running_peak, load_.running);
}

void Scheduler::restore() {
  const int learned = decoder_->model().hyper().learned_positions;
  bool failed = false;
  for (auto& job : running_) {
    if (job->request.resume == nullptr) continue;
    try {
      std::exchange(job->request.resume, nullptr)->load(*job->sequence);
      job->evicted_before = job->sequence->cache().evicted();
      const auto all = job->sequence->cache().next() + std::ssize(job->request.prompt) + job->request.max_tokens;
      if (learned > 0 && all > learned + 1)
        fail("{} tokens before and to come are more than the {} positions that this model has learned", all, learned);
    } catch (const Error& e) {
      finish(*job, Finish::kFailed, e.what());
      failed = true;
    }
  }
  if (failed) clear_away();
}

void Scheduler::go_on_from_kept(Job& job) {
  if (!job.rule) return;
  Cache* kept = prefixes_.find(*job.rule, job.request.prompt, job.read);
  if (kept == nullptr) return;
  job.sequence->go_on_from(*kept);
  const auto read = static_cast<std::size_t>(kept->next());
  job.usage.cached += static_cast<long long>(read - job.read);
  prefix_hits_ += static_cast<long long>(read - job.read);
  job.read = read;
}

// Whether another reads in this step what `job` would read next, so that it can go on from there in the next one.
bool Scheduler::read_by_another(const Job& job) const {
  if (options_.prefix_bytes == 0 || !job.rule) return false;
  return std::ranges::any_of(running_, [&](const auto& other) {
    if (!other->rule || !other->reading() || other->tokens.empty() || other->moment != Moment::kPrompt) return false;
    const auto& prompt = other->request.prompt;
    const std::size_t end = other->read + other->tokens.size();
    return other->read == job.read && end < job.request.prompt.size() && other->request.method == job.request.method &&
           std::equal(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(end), job.request.prompt.begin());
  });
}

int Scheduler::share_out() {
  int left = options_.step_tokens;
  for (auto& job : running_) {
    job->tokens = {};
    if (job->reading() || job->repeating() || !job->listener->ready()) continue;
    job->moment = Moment::kDecode;
    job->sequence->make_room(1, job->moment, false);
    job->tokens = {&job->next, 1};
    --left;
  }
  for (auto& job : running_) {
    if (job->repeating() && left >= options_.chunk) {
      job->tokens = std::span(job->request.prompt).subspan(job->repeated);  // as many as go into a chunk
      job->moment = Moment::kPrompt;
      left -= options_.chunk;
      continue;
    }
    if (!job->reading() || left < options_.chunk) continue;
    go_on_from_kept(*job);  // somebody may have come further since
    if (read_by_another(*job)) continue;
    const std::span<const TokenId> rest = std::span(job->request.prompt).subspan(job->read);
    const std::size_t wanted = std::min(rest.size(), static_cast<std::size_t>(options_.chunk));
    job->tokens = rest.first(job->sequence->make_room(wanted, Moment::kPrompt, false));
    job->moment = job->tokens.size() == rest.size() ? Moment::kPromptEnd : Moment::kPrompt;
    left -= static_cast<int>(job->tokens.size());
  }
  return options_.step_tokens - left;
}

void Scheduler::run_group(const std::vector<Job*>& group) {
  std::span<const float> logits;
  try {
    steps_.clear();
    for (Job* job : group)
      steps_.push_back(job->repeating() ? job->sequence->begin_repeat(job->request.prompt, job->repeated)
                                        : job->sequence->begin(job->tokens, false));
    logits = decoder_->step(steps_);
    for (Job* job : group) {
      if (job->repeating())
        job->sequence->end_repeat();
      else if (job->moment == Moment::kPromptEnd && job->sequence->repeats())
        job->sequence->end(job->tokens.size(), Moment::kPrompt);
      else
        job->sequence->end(job->tokens.size(), job->moment);
    }
  } catch (const Error& e) {  // no memory: their caches are no longer what they should be
    for (Job* job : group) finish(*job, Finish::kFailed, e.what());
    return;
  }
  const std::size_t width = logits.size() / group.size();
  for (std::size_t i = 0; i < group.size(); ++i) {
    Job& job = *group[i];
    if (job.reading()) job.read += job.tokens.size();
    if (job.reading()) {
      if (!job.rule) continue;
      prefixes_.keep(*job.rule, std::span(job.request.prompt).first(job.read), job.sequence->cache(),
                     options_.prefix_bytes);
      continue;
    }
    auto next = logits.subspan(i * width, width);
    if (!job.repeating() && job.moment == Moment::kPromptEnd && job.sequence->repeats()) {
      job.logits.assign(next.begin(), next.end());
      continue;
    }
    if (job.repeating() && job.repeated < job.request.prompt.size()) continue;
    const std::vector<float> before = std::exchange(job.logits, {});
    if (!before.empty()) {
      job.sequence->end(0, Moment::kPromptEnd);
      next = before;
    }
    try {
      advance(job, next);
    } catch (const Error& e) {  // of the sampler: a grammar that cannot be met, logits that are no numbers
      finish(job, Finish::kFailed, e.what());
    }
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
    std::vector<TokenId> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto most = std::min<std::ptrdiff_t>(request.top_logprobs, std::ssize(order));
    std::ranges::partial_sort(order, order.begin() + most, std::greater(), [&](TokenId t) { return logits[t]; });
    job.top.clear();
    for (std::ptrdiff_t i = 0; i < most; ++i)
      job.top.emplace_back(order[i], static_cast<float>(logits[order[i]] - log_sum));
    written.top_logprobs = job.top;
  }
  try {
    written.token = job.next = job.sampler->sample(logits);
  } catch (const Error& e) {  // a grammar that cannot be met, logits that are no numbers
    return finish(job, Finish::kFailed, e.what());
  }
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
}

void Scheduler::clear_away() {
  const std::lock_guard lock(mutex_);
  int ended = 0;
  for (auto& job : running_) {
    if (!job->over) continue;
    ++ended;
    load_.promised_bytes -= job->need;
    load_.evicted += job->usage.evicted;
    ++load_.finished[static_cast<int>(*job->over)];
    job.reset();
  }
  std::erase(running_, nullptr);
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
  load_.used_bytes = pool_->bytes_in_use() - load_.prefix_bytes;
  load_.copied_bytes = static_cast<long long>(pool_->pages_copied() * pool_->page_bytes());
  load_.peak_bytes = pool_->bytes_peak();
}

bool Scheduler::step() {
  end_some();
  clear_away();
  admit();
  restore();
  const int tokens = share_out();
  if (tokens == 0) return false;
  long long prompt = 0, written = 0;
  for (const Rotation rotation : {Rotation::kNever, Rotation::kAtWrite, Rotation::kLate, Rotation::kRecompute}) {
    std::vector<Job*> group;
    for (auto& job : running_)
      if (!job->tokens.empty() && job->sequence->rule().rotation == rotation) group.push_back(job.get());
    if (group.empty()) continue;
    for (const Job* job : group) prompt += job->reading() ? static_cast<long long>(job->tokens.size()) : 0;
    for (const Job* job : group) written -= job->usage.tokens;
    run_group(group);
    for (const Job* job : group) written += job->usage.tokens;
  }
  clear_away();
  const std::lock_guard lock(mutex_);
  ++load_.steps;
  load_.prompt_tokens += prompt;
  load_.tokens += written;
  return true;
}

void Scheduler::run(std::stop_token stop) {
  using namespace std::chrono_literals;
  while (!stop.stop_requested()) {
    if (step()) continue;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, stop, 20ms, [&] { return woken_; });  // deadlines come without a sound
  }
}

}  // namespace palimpsest
