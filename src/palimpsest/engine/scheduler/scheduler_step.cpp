// A step of the scheduler: which sequences take part, and what follows from their logits.
#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <tuple>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {
namespace {

SchedulerJob& job_of(const StepShare& share) {
  return *static_cast<const SchedulerShare&>(share).job;
}

// On a device: those that write, as they lie there; then prompts.
void order_by_place(std::vector<StepShare*>& shares) {
  if (shares.front()->step.cache->storage() == nullptr) return;
  std::ranges::stable_sort(shares, {}, [](const StepShare* share) {
    const CacheStorage* const storage = share->step.cache->storage();
    return std::pair(share->step.tokens.size() > 1, storage == nullptr ? 0 : storage->place());
  });
}

}  // namespace

// Reads the token generated last, with at most `max` drafts. Returns how many the step has.
int Scheduler::begin_decode(Job& job, int max) noexcept {
  try {
    if (job.speculation) job.sequence->read(job.next, job.loop->drafts(max));
  } catch (...) {
    fail_job(job);
    return 0;
  }
  begin(job);
  return job.begun ? static_cast<int>(job.share.step.tokens.size()) - 1 : 0;
}

// Adds `job` to this step.
void Scheduler::begin(Job& job) noexcept {
  job.is_prefill = job.in_prompt();
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
    return std::tuple(-job->request.priority, first ? std::size_t{0} : job->sequence->tokens_left(), job->id);
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
    left -= static_cast<int>(job->share.step.tokens.size());
  }
  passed_over_ = oldest->begun || oldest->over ? 0 : oldest->id;
}

// Samples a token of each sequence at the same time: that reads the whole vocabulary, what follows does not. Without
// memory for the threads advance() samples.
void Scheduler::sample(std::span<StepShare* const> shares) noexcept {
  const auto samples = [](const StepShare* share) {
    return share->step.result == StepResult::kLogits && !share->logits.empty();
  };
  if (std::ranges::count_if(shares, samples) < 2) return;
  const std::size_t width = at(decoder_->model().hyper().vocabulary);
  try {
    workers_->run(static_cast<int>(shares.size()), [&](int i) {
      if (samples(shares[at(i)])) job_of(*shares[at(i)]).loop->sample(shares[at(i)]->logits.first(width));
    });
  } catch (...) {
  }
}

// After the model's step.
void Scheduler::finish_step(Job& job) noexcept {
  if (job.share.failure) return fail_share(job);
  try {
    if (job.is_prefill)
      job.listener->prompt_read(static_cast<long long>(job.sequence->tokens_read()), job.usage.cached);
    if (job.edits_history()) {
      if (job.sequence->stage() == Sequence::Stage::kIdle) next_edit(job);
    } else if (job.request.pooling != Pooling::kNone) {
      pool(job, job.share.logits);
    } else if (job.request.edit) {
      if (job.sequence->stage() == Sequence::Stage::kIdle) finish(job, Finish::kLength);
    } else if (!job.share.logits.empty()) {
      if (job.usage.tokens == 0)
        keep_history(job, false, job.share.logits.first(at(decoder_->model().hyper().vocabulary)));
      advance(job, job.share.logits);
    } else if (job.in_prompt()) {
      job.prefix_key ? keep_prefix(job) : keep_history(job, true);
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
    prefixes_.keep(*job.prefix_key, job.request.prompt, job.sequence->tokens_read(), *job.sequence,
                   options_.prefix_bytes, job.history.has_value());
    limit_prefixes();
  } catch (...) {
  }
}

// Keeps what the sequence has read; without memory it does nothing.
void Scheduler::keep_history(Job& job, bool in_prompt, std::span<const float> logits) noexcept {
  // A part of a prompt that is read twice is not enough: the second time begins at its beginning.
  if (!job.history || (in_prompt && job.sequence->repeats())) return;
  const auto read = static_cast<std::size_t>(job.sequence->cache().next());
  if (read > job.text.size()) return;  // longer than kMaxHistory
  try {
    prefixes_.keep_history(*job.history, std::span(job.text).first(read), *job.sequence, in_prompt, logits,
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

void Scheduler::advance(Job& job, std::span<const float> logits) {
  const std::optional<Finish> end =
      job.loop->advance(logits, at(decoder_->model().hyper().vocabulary),
                        [&](SampledToken& token, std::span<const float> row) { return write(job, token, row); });
  job.loop->settle([&](int accepted) { job.sequence->accept(accepted); });
  if (job.speculation) job.usage.drafts = job.speculation->counts();
  if (end)
    finish(job, *end);
  else
    job.sequence->read(job.next);
}

// Gives a token to the listener. Returns whether that ends the text.
std::optional<Finish> Scheduler::write(Job& job, SampledToken& token, std::span<const float> logits) {
  if (const int top = job.request.top_logprobs; top >= 0) {
    const double log_sum = log_sum_exp(logits);
    token.top_logprobs = job.likeliest.of(logits, log_sum, top);
    token.logprob = static_cast<float>(logits[at(token.token)] - log_sum);
  }
  job.next = token.token;
  if (job.text.size() < job.text.capacity()) job.text.push_back(token.token);
  if (job.usage.tokens++ == 0) job.usage.ttft_ms = ms_since(job.submitted);
  return job.listener->written(token) ? std::nullopt : std::optional(Finish::kStopped);
}

bool Scheduler::step() {
  end_cancelled();
  remove_finished();
  admit();
  const bool loading = advance_loads();
  if (disk_writer_ != nullptr) write_to_disk(options_.disk.unused_for);
  share_out();
  long long prompt = 0, written = 0;
  int sequences = 0;  // that write
  bool stepped = false;
  const auto start = Clock::now();
  for (const StepResult result : {StepResult::kLogits, StepResult::kHidden}) {
    group_.clear();
    for (auto& job : running_)
      if (job->begun && !job->over && job->share.step.result == result) group_.push_back(&job->share);
    if (group_.empty()) continue;
    order_by_place(group_);
    stepped = true;
    loop_.run(group_, [&](std::span<StepShare* const> shares) {
      sample(shares);
      for (StepShare* share : shares) {
        Job& job = job_of(*share);
        job.is_prefill ? prompt += static_cast<long long>(share->step.tokens.size()) : sequences += 1;
        written -= job.usage.tokens;
        finish_step(job);
        written += job.usage.tokens;
      }
    });
  }
  const bool ended = std::ranges::any_of(running_, [](const auto& job) { return job->over.has_value(); });
  remove_finished();
  std::unique_lock lock(mutex_);
  if (loading && !stepped && !ended) changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return woken_; });
  if (stepped) {
    ++load_.steps;
    wait_.stepped(prompt, written, sequences, ms_since(start) / 1000);
  }
  load_.prompt_tokens += prompt;
  load_.tokens += written;
  return stepped || ended || loading;
}

}  // namespace palimpsest
