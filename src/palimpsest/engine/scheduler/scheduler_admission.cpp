// Admission: which request runs next, its sequence, and what it continues from (a snapshot, a kept prefix, a history).
#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "palimpsest/engine/scheduler/scheduler.h"
#include "palimpsest/engine/sequence/released_sequence.h"
#include "palimpsest/engine/sequence/snapshot.h"

namespace palimpsest {
namespace {

constexpr int kMeasuredDrafts = 15;  // the price of more follows

// Sets the text to `read` and `rest`, with room for all that will be generated, up to kMaxHistory.
void begin_text(SchedulerJob& job, std::span<const TokenId> read, std::span<const TokenId> rest) {
  if (!job.holds_text()) return;
  const long long all = std::ssize(read) + std::ssize(rest) + job.request.max_tokens;
  job.text.clear();
  job.text.reserve(text_bytes(all) / sizeof(TokenId));
  for (const auto tokens : {read, rest})
    for (const TokenId token : tokens.first(std::min(tokens.size(), job.text.capacity() - job.text.size())))
      job.text.push_back(token);
}

}  // namespace

// The request to admit next: the first of the queue. If it does not fit, the next one that fits may overtake it, unless
// the first one would fit without the later requests that are admitted already: so the number of overtakers is bounded.
// One eighth of max_sequences is kept for prompts of one chunk at most.
std::deque<std::unique_ptr<Scheduler::Job>>::iterator Scheduler::next_of_queue() {
  struct Held {
    std::size_t bytes = 0;
    int sequences = 0, long_prompts = 0;
  };
  const auto is_long = [this](const Job& job) {
    return job.request.prompt.size() > static_cast<std::size_t>(options_.chunk);
  };
  const auto fits = [&](const Job& job, const Held& held) {
    return held.bytes + job.reserved_bytes <= options_.pool_bytes && held.sequences < options_.max_sequences &&
           (!is_long(job) || held.long_prompts < options_.max_sequences - options_.max_sequences / 8);
  };
  if (queue_.empty()) return queue_.begin();
  const auto held_by = [&](std::uint64_t before) {  // by requests that arrived before this one
    Held held;
    for (const Reservation& reserved : reserved_) held.bytes += reserved.id < before ? reserved.bytes : 0;
    for (const auto& job : running_) {
      if (job->id >= before) continue;
      ++held.sequences;
      held.long_prompts += is_long(*job) ? 1 : 0;
    }
    return held;
  };
  const Held all = held_by(UINT64_MAX), without_overtakers = held_by(queue_.front()->id);
  if (fits(*queue_.front(), all)) return queue_.begin();
  if (fits(*queue_.front(), without_overtakers)) return queue_.end();
  return std::find_if(queue_.begin() + 1, queue_.end(), [&](const auto& job) { return fits(*job, all); });
}

std::unique_ptr<Scheduler::Job> Scheduler::take_next() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Job> job;
  if (const auto next = next_of_queue(); next != queue_.end()) {
    job = std::move(*next);
    queue_.erase(next);
    left_.push_back(job->tokens_left());
    if (job->prefix_key) load_.prefix_queries += job->usage.prompt_tokens;
    if (job->history) ++load_.history_queries;
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
      reserve(job);
      make_sequence(job);
      begin_text(job, {}, job.request.prompt);
      if (job.request.memory) job.memory.emplace();
      if (job.request.resume != nullptr)
        begin_to_load(job);
      else if (!begin_from_disk(job))
        begin_prompt(job);
    } catch (...) {
      fail_job(job);
    }
  }
}

// From what is kept in memory, if anything is.
void Scheduler::begin_prompt(Job& job) {
  if (!continue_from_edited(job)) {  // before limit_prefixes() evicts it: its pages are then shared
    continue_from_history(job);
    continue_from_prefix(job);
  }
  limit_prefixes();
  if (job.memory) job.sequence->set_memory_log(job.memory->log);
  if (!job.known_logits.empty()) advance(job, std::exchange(job.known_logits, {}));
}

void Scheduler::reserve(const Job& job) {
  const std::lock_guard lock(mutex_);
  reserved_.push_back({job.id, job.reserved_bytes, job.overhead_bytes});
  load_.reserved_bytes += job.reserved_bytes;
}

void Scheduler::release(std::uint64_t id) noexcept {
  const std::lock_guard lock(mutex_);
  const auto it = std::ranges::find(reserved_, id, &Reservation::id);
  if (it == reserved_.end()) return;
  load_.reserved_bytes -= it->bytes;
  reserved_.erase(it);
}

// Nothing is allocated for a request before its bytes are reserved.
void Scheduler::make_sequence(Job& job) {
  job.sequence = std::make_unique<Sequence>(*decoder_, options_of(job.request), job.plan, workers_,
                                            job.plan->cache().pages ? pool_ : nullptr);
  job.sequence->set_interrupt(job.interrupt);
  job.share.sequence = job.sequence.get();
  if (job.request.drafts.max > 0) {
    DraftOptions drafts = job.request.drafts;
    if (!drafts.price) drafts.price = options_.draft_price;
    if (!drafts.price && !draft_price_) draft_price_ = measure_decoder(*decoder_, kMeasuredDrafts).price;
    job.speculation.emplace(std::make_unique<LookupDrafter>(), drafts, draft_price_.value_or(DraftPrice()));
    job.speculation->append(job.request.prompt);
  }
  job.loop.emplace(
      TokenLoop::Options{
          .max_tokens = job.request.max_tokens, .ignore_end = job.request.ignore_end, .given = job.request.given},
      *job.sampler, vocabulary_.get(), job.speculation ? &*job.speculation : nullptr);
  const bool pools = job.request.pooling != Pooling::kNone;
  if (!job.request.prompt.empty())
    job.sequence->read(job.request.prompt, pools, pools ? StepResult::kHidden : StepResult::kLogits);
}

// Prefixes use only memory that is not reserved: their tables are accounted for here; their pages are freed when the
// pool runs out of pages.
void Scheduler::limit_prefixes() {
  while (load_.reserved_bytes + prefixes_.overhead_bytes() > options_.pool_bytes && prefixes_.evict_one()) {
  }
  std::size_t beside = prefixes_.overhead_bytes();
  for (const Reservation& reserved : reserved_) beside += reserved.overhead_bytes;
  assert(beside <= options_.pool_bytes);
  pool_->set_limit(options_.pool_bytes - beside, [this] { return prefixes_.evict_one(); });
  pool_->reserve(std::span<const std::size_t>());
}

void Scheduler::begin_to_load(Job& job) {
  limit_prefixes();
  if (job.memory) job.sequence->set_memory_log(job.memory->log);
  if (job.holds_text()) job.text = job.request.resume->text().tokens;  // until restore()
  auto open = [snapshot = std::move(job.request.resume)] { return snapshot->sequence_bytes(); };
  job.loading = loader_.begin(std::move(open), std::move(job.sequence), job.id);
}

bool Scheduler::advance_loads() {
  bool waits = false;
  for (auto& job : running_) {
    if (job->over || job->loading == nullptr) continue;
    try {
      std::unique_ptr<Sequence> sequence;
      try {
        sequence = loader_.advance(job->loading);
      } catch (const Error& error) {
        if (!job->from_disk) throw;
        give_up_disk(*job, error.what());
      }
      if (sequence != nullptr)
        job->from_disk ? restore_from_disk(*job, std::move(sequence)) : restore(*job, std::move(sequence));
      waits = waits || job->loading != nullptr;  // also that of another file, after one that failed
    } catch (...) {
      fail_job(*job);
    }
  }
  return waits;
}

// The sequence was loaded from its snapshot.
void Scheduler::restore(Job& job, std::unique_ptr<Sequence> sequence) {
  job.loading.reset();
  job.sequence = std::move(sequence);
  job.share.sequence = job.sequence.get();
  job.dropped_before = job.sequence->cache().dropped();
  if (job.request.edit) return edit(job);
  if (job.request.prompt.empty())
    job.sequence->read(job.next);
  else
    job.sequence->read(job.request.prompt);
  std::vector<TokenId> read = std::move(job.text);
  read.resize(text_bytes(job.sequence->cache().next()) / sizeof(TokenId), -1);
  begin_text(job, read, job.request.prompt.empty() ? std::span(&job.next, 1) : std::span(job.request.prompt));
  const int learned = decoder_->model().hyper().learned_positions;
  const auto all = job.sequence->cache().next() + std::ssize(job.request.prompt) + job.request.max_tokens;
  if (learned > 0 && all > learned + 1)
    fail("{} tokens in total exceed the {} learned positions of this model", all, learned);
}

// Edits the text of the restored sequence, and sets what it reads.
void Scheduler::edit(Job& job) {
  const TextEdit& edit = *job.request.edit;
  Sequence& sequence = *job.sequence;
  const auto read = static_cast<std::size_t>(sequence.cache().next());
  const bool known = job.text.size() >= read;
  job.text.resize(known ? read : 0);
  try {
    if (edit.mode == EditMode::kReuse) {
      sequence.edit(edit.range, edit.tokens, decoder_->model().hyper());
      if (known) job.text = edited(job.text, edit.range, edit.tokens);
      job.usage.prompt_tokens = std::ssize(edit.tokens);
    } else {
      sequence.check_edit(edit.range);
      if (!known)
        fail("mode exact reads tokens again, and the session does not hold them: it was longer than {}", kMaxHistory);
      job.text = edited(job.text, edit.range, edit.tokens);
      const Position start = sequence.unaffected_until(edit.range.first, std::ssize(job.text));
      start > 0 ? sequence.rewind(start) : sequence.clear();
      job.rest.assign(job.text.begin() + start, job.text.end());
      if (!job.rest.empty()) sequence.read(job.rest);
      job.dropped_before = sequence.cache().dropped();
      job.usage.prompt_tokens = std::ssize(job.rest);
    }
  } catch (const Error&) {
    job.usage.invalid_request = true;
    throw;
  }
  if (known && job.next >= 0) job.text.push_back(job.next);
  if (sequence.stage() == Sequence::Stage::kIdle) finish(job, Finish::kLength);
}

// Reserves `bytes` instead of what the job has reserved; false: there is no room.
bool Scheduler::reserve_more(Job& job, const PlanBytes& bytes) {
  const std::lock_guard lock(mutex_);
  const std::size_t need = std::max(job.reserved_bytes, bytes.total());
  const std::size_t beside = std::max(job.overhead_bytes, bytes.total() - bytes.pages);
  if (load_.reserved_bytes - job.reserved_bytes + need > options_.pool_bytes) return false;
  const auto it = std::ranges::find(reserved_, job.id, &Reservation::id);
  assert(it != reserved_.end());
  load_.reserved_bytes += need - job.reserved_bytes;
  it->bytes = job.reserved_bytes = need;
  it->overhead_bytes = job.overhead_bytes = beside;
  return true;
}

// Of a request that continues from a history, or an edit of one: it has `read` tokens before it writes, and `all` at
// its end.
PlanBytes Scheduler::continued_bytes(const Job& job, long long read, long long all) const {
  PlanBytes bytes = job.plan->bytes(read, all, true);
  bytes.tables += text_bytes(all);
  return bytes;
}

// If the prompt begins with a history, the sequence reads only the rest, if any; from then on its cache depends on more
// than the prompt's tokens, so that it neither uses nor leaves prefixes.
void Scheduler::continue_from_history(Job& job) {
  if (!job.history) return;
  const std::span<const TokenId> prompt = job.request.prompt;
  auto history = prefixes_.find_history(*job.history, prompt, vocabulary_.get());
  if (!history || prefixes_.find(*job.prefix_key, prompt, history->next.matched) != nullptr) return;
  const auto read = std::ssize(history->tokens) + std::ssize(history->next.rest);
  const long long all = read + job.request.max_tokens;
  const int learned = decoder_->model().hyper().learned_positions;
  if (learned > 0 && all > learned + 1) return;
  if (!reserve_more(job, continued_bytes(job, read, all))) return;
  job.history->pin = history->pin;
  begin_text(job, history->tokens, history->next.rest);
  job.rest = std::move(history->next.rest);
  job.sequence->continue_from(history->cache, history->state, history->in_prompt);
  if (job.rest.empty()) {  // the same as without the history, evictions included
    job.known_logits.assign(history->logits.begin(), history->logits.end());
  } else {
    job.sequence->read(job.rest);
    job.dropped_before = job.sequence->cache().dropped();
  }
  job.usage.cached = static_cast<long long>(history->next.matched);
  prefix_hits_ += job.usage.cached;
  ++history_hits_;
  job.prefix_key.reset();
}

void Scheduler::continue_from_prefix(Job& job) {
  if (!job.prefix_key || !job.in_prompt()) return;
  const std::size_t before = job.sequence->tokens_read();
  Cache* kept = prefixes_.find(*job.prefix_key, job.request.prompt, before);
  if (kept == nullptr) return;
  job.sequence->continue_from(*kept);
  const auto read = static_cast<std::size_t>(kept->next());
  job.usage.cached += static_cast<long long>(read - before);
  prefix_hits_ += static_cast<long long>(read - before);
  job.sequence->skip(read);
}

// Whether another job reads the same chunk in this step: then `job` can continue from its prefix in the next one.
bool Scheduler::read_by_another(const Job& job) const {
  if (!job.prefix_key || !job.in_prompt()) return false;
  return std::ranges::any_of(running_, [&](const auto& other) {
    if (!other->prefix_key || other->prefix_key->scope != job.prefix_key->scope || !other->begun || !other->in_prompt())
      return false;
    const std::span<const TokenId> prompt = other->request.prompt;
    const std::size_t from = other->sequence->tokens_read(), end = from + other->share.step.tokens.size();
    const std::size_t window = job.prefix_key->window;
    return end + window <= prompt.size() && from == job.sequence->tokens_read() &&
           end + window <= job.request.prompt.size() && other->request.method == job.request.method &&
           other->prefix_key->cache == job.prefix_key->cache &&
           std::ranges::equal(prompt.first(end), std::span(job.request.prompt).first(end));
  });
}

}  // namespace palimpsest
