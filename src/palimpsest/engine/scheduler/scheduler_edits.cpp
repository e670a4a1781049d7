// A prompt that differs from a history in its middle: the history's text is edited into the prompt's beginning, span by
// span, in steps like those of any prompt. What stands behind a span keeps its keys and values (EditMode::kReuse).
#include <algorithm>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {
namespace {

// From the text that `history` has read to the end of the last common run; positions are those after the edits before.
std::vector<TextEdit> edits_between(const EditedHistory& history, std::span<const TokenId> prompt) {
  std::vector<TextEdit> edits;
  std::size_t read = 0, text = 0;
  const auto add = [&](std::size_t removed, std::size_t inserted) {
    if (removed == 0 && inserted == 0) return;
    const auto first = static_cast<Position>(text);
    const auto tokens = prompt.subspan(text, inserted);
    edits.push_back(
        {.range = {first, first + static_cast<Position>(removed)}, .tokens = {tokens.begin(), tokens.end()}});
  };
  for (const CommonRun& run : history.runs) {
    add(run.in_read - read, run.in_text - text);
    read = run.in_read + run.tokens, text = run.in_text + run.tokens;
  }
  return edits;
}

}  // namespace

// Whether the request continues from a history that is edited. From then on it neither uses nor leaves prefixes.
bool Scheduler::continue_from_edited(Job& job) {
  const int min = job.request.cache_reuse.value_or(options_.cache_reuse);
  if (min == 0 || !job.history) return false;
  const std::span<const TokenId> prompt = job.request.prompt;
  const auto history = prefixes_.find_edited(*job.history, prompt, vocabulary_.get(), at(min));
  if (!history) return false;
  const CommonRun& last = history->runs.back();
  const std::size_t end = last.in_text + last.tokens;
  const auto most = std::ssize(history->tokens) + static_cast<long long>(history->unread);  // tokens at any time
  const long long all = std::max(most, std::ssize(prompt) + job.request.max_tokens);
  PlanBytes bytes = job.plan->bytes(most, all, true);
  bytes.tables += 2 * text_bytes(all);  // the text, and that of edits
  if (!reserve_more(job, bytes)) return false;
  const std::size_t begins = history->runs.front().in_text + history->runs.front().in_read == 0
                                 ? history->runs.front().tokens
                                 : 0;  // what no change stands before
  try {
    job.sequence->continue_from(history->cache, history->state, history->in_prompt);
    const auto cut = static_cast<Position>(last.in_read + last.tokens), next = job.sequence->cache().next();
    if (cut < next) job.sequence->edit({cut, next}, {}, decoder_->model().hyper());
    job.edits = edits_between(*history, prompt);
    job.edits_begun = 0;
    job.rest.assign(prompt.begin() + static_cast<std::ptrdiff_t>(end), prompt.end());
    job.usage.cached = std::ssize(prompt) - static_cast<long long>(history->unread);
    job.usage.reused = job.usage.cached - static_cast<long long>(begins);
    job.usage.edited = static_cast<long long>(history->unread) - std::ssize(job.rest);
    job.history->pin = history->pin;
    job.prefix_key.reset();
    job.dropped_before = job.sequence->cache().dropped();
  } catch (const Error&) {
    read_anew(job);
    return false;
  }
  return next_edit(job);
}

// Begins the next edit that reads tokens, else the rest of the prompt. false: it was refused, and the prompt is read
// anew. A later one may be refused, too: its tokens were evicted while those of an earlier one were read.
bool Scheduler::next_edit(Job& job) {
  try {
    while (job.edits_begun < job.edits.size()) {
      const TextEdit& edit = job.edits[job.edits_begun++];
      job.sequence->edit(edit.range, edit.tokens, decoder_->model().hyper(), Sequence::Pins::kAsItWillBe);
      if (!edit.tokens.empty()) return true;
    }
  } catch (const Error&) {
    read_anew(job);
    return false;
  }
  job.edits.clear();
  job.sequence->read(job.rest);
  prefix_hits_ += job.usage.cached;
  ++history_hits_;
  return true;
}

// Gives up the edits.
void Scheduler::read_anew(Job& job) {
  job.sequence->clear();
  job.edits.clear();
  job.usage.cached = job.usage.reused = job.usage.edited = 0;
  job.dropped_before = job.sequence->cache().dropped();
  job.prefix_key = job.history;
  job.sequence->read(job.request.prompt);
}

}  // namespace palimpsest
