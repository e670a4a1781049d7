// Kept prefixes and histories on disk: which are loaded for a prompt, and when they are written.
#include <algorithm>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {
namespace {

using namespace std::chrono_literals;

constexpr long long kSplitToken = 64;  // tokens that a token of the prompt may become at a history's end
constexpr auto kWriteInterval = 100ms;
constexpr auto kAfterError = 60s;

}  // namespace

// Whether a file is loaded into the job's sequence: the one that the prompt matches most, if that is more than what
// memory has, and faster than reading it.
bool Scheduler::begin_from_disk(Job& job) {
  if (job.on_disk.empty()) return false;
  const std::span<const TokenId> prompt = job.request.prompt;
  const std::size_t have =
      prefixes_.longest(*job.prefix_key, job.history ? &*job.history : nullptr, prompt, vocabulary_.get());
  while (!job.on_disk.empty()) {
    const DiskCache::File file = std::move(job.on_disk.front());
    job.on_disk.erase(job.on_disk.begin());
    if (file.matched <= have) return false;
    if (options_.disk.skip_slow) {
      const std::lock_guard lock(mutex_);
      if (load_speed_.seconds(file.bytes) > wait_.seconds_to_read(static_cast<long long>(file.matched - have))) {
        ++load_.disk_skipped;
        load_speed_.skipped();
        return false;
      }
    }
    if (file.kind == KeptKind::kPrefix) {
      if (file.matched != file.tokens || file.tokens + job.prefix_key->window > prompt.size()) continue;
    } else {
      if (file.matched == prompt.size()) continue;  // files have no logits
      const long long read = static_cast<long long>(file.tokens + prompt.size() - file.matched) + kSplitToken;
      if (!reserve_more(job, continued_bytes(job, read, read + job.request.max_tokens))) continue;
    }
    limit_prefixes();
    Job::FromDisk& from = job.from_disk.emplace(Job::FromDisk{.file = file});
    auto open = [disk = disk_, file, key = job.disk_key, plan = job.plan, head = from.head,
                 vocabulary = decoder_->model().hyper().vocabulary] {
      return disk->open(file, key, *plan, vocabulary, *head);
    };
    job.loading = loader_.begin(std::move(open), std::move(job.sequence), job.id);
    return true;
  }
  return false;
}

// The job's file was loaded into `sequence`.
void Scheduler::restore_from_disk(Job& job, std::unique_ptr<Sequence> sequence) {
  const Job::FromDisk from = *std::exchange(job.from_disk, std::nullopt);
  job.loading.reset();
  job.sequence = std::move(sequence);
  job.share.sequence = job.sequence.get();
  if (!continue_from_disk(job, from)) {
    job.sequence->clear();
    return begin_without(job);
  }
  load_speed_.loaded(from.file.bytes, ms_since(from.begun) / 1000);
  job.usage.cached = job.usage.from_disk = static_cast<long long>(from.file.matched);
  prefix_hits_ += job.usage.cached;
  {
    const std::lock_guard lock(mutex_);
    ++load_.disk_hits;
    load_.disk_tokens += job.usage.from_disk;
    load_.disk_read_bytes += static_cast<long long>(from.file.bytes);
  }
  if (job.memory) job.sequence->set_memory_log(job.memory->log);
  if (from.file.kind == KeptKind::kPrefix) keep_prefix(job);
}

// As continue_from_prefix() and continue_from_history(). false: the file has another text than its name says.
bool Scheduler::continue_from_disk(Job& job, const Job::FromDisk& from) {
  const std::vector<TokenId>& tokens = from.head->tokens;
  const std::span<const TokenId> prompt = job.request.prompt;
  if (job.sequence->cache().next() != std::ssize(tokens)) return false;
  if (from.file.kind == KeptKind::kPrefix) {
    if (!std::ranges::equal(tokens, prompt.first(tokens.size()))) return false;
    job.sequence->continue_prompt();
    job.sequence->read(prompt);
    job.sequence->skip(tokens.size());
    return true;
  }
  auto next = continuation(tokens, prompt, vocabulary_.get());
  if (!next || next->rest.empty() || next->matched != from.file.matched) return false;
  const auto read = std::ssize(tokens) + std::ssize(next->rest);
  const long long all = read + job.request.max_tokens;
  const int learned = decoder_->model().hyper().learned_positions;
  if (learned > 0 && all > learned + 1) return false;
  if (!reserve_more(job, continued_bytes(job, read, all))) return false;
  begin_text(job, tokens, next->rest);
  job.rest = std::move(next->rest);
  if (from.head->in_prompt) job.sequence->continue_prompt();
  job.sequence->read(job.rest);
  job.dropped_before = job.sequence->cache().dropped();
  ++history_hits_;
  prefixes_.count_use(from.file.kind == KeptKind::kPromptEnd);
  job.prefix_key.reset();
  return true;
}

// The load failed: the file is not used again.
void Scheduler::give_up_disk(Job& job, const std::string& error) {
  const std::string name = std::exchange(job.from_disk, std::nullopt)->file.name;
  job.sequence = SnapshotLoader::take_back(*job.loading);
  job.loading.reset();
  job.share.sequence = job.sequence.get();
  disk_->ignore(name);
  {
    const std::lock_guard lock(mutex_);
    ++load_.disk_errors;
  }
  if (options_.disk.on_error) options_.disk.on_error("a kept cache on disk is not used: " + error);
  begin_without(job);
}

// Continues from another file, or from what is in memory.
void Scheduler::begin_without(Job& job) {
  job.sequence->read(job.request.prompt);
  if (!begin_from_disk(job)) begin_prompt(job);
}

// Ends a write that has ended, and begins another.
void Scheduler::write_to_disk(std::chrono::milliseconds unused_for) noexcept {
  try {
    const auto now = Clock::now();
    if (const auto result = disk_writer_->collect()) {
      prefixes_.end_to_write();
      {
        const std::lock_guard lock(mutex_);
        load_.disk_errors += result->error.empty() ? 0 : 1;
        load_.disk_writes += result->written ? 1 : 0;
        load_.disk_written_bytes += static_cast<long long>(result->bytes);
      }
      if (!result->error.empty()) {
        next_write_ = now + kAfterError;
        if (options_.disk.on_error)
          options_.disk.on_error("kept caches are not written to disk for a minute: " + result->error);
      }
    }
    if (now < next_write_ || !disk_writer_->idle()) return;
    // Before three quarters of the memory are in use, so that what leaves it was written.
    const std::size_t kept = prefixes_.bytes();
    if (kept > options_.prefix_bytes / 4 * 3 || kept + load_.reserved_bytes > options_.pool_bytes / 4 * 3)
      unused_for = 0ms;
    next_write_ = now + std::min<Clock::duration>(kWriteInterval, unused_for);
    const auto next = prefixes_.begin_to_write(unused_for, [this] { disk_writer_->abandon(); });
    if (!next) return;
    disk_writer_->begin({.key = disk_->key_of(next->key),
                         .kind = !next->history        ? KeptKind::kPrefix
                                 : next->at_prompt_end ? KeptKind::kPromptEnd
                                                       : KeptKind::kHistory,
                         .in_prompt = next->in_prompt,
                         .tokens = next->tokens,
                         .cache = &next->cache,
                         .state = next->state,
                         .pin = next->pin});
  } catch (...) {  // no memory
    prefixes_.end_to_write();
  }
}

void Scheduler::save_kept() {
  if (disk_writer_ == nullptr) return;
  next_write_ = {};
  do {
    disk_writer_->wait();
    write_to_disk(0ms);
  } while (!disk_writer_->idle());
}

}  // namespace palimpsest
