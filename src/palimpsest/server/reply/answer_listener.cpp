#include "palimpsest/server/reply/answer_listener.h"

#include <limits>
#include <utility>

namespace palimpsest {
void Mailbox::put(Event event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
  arrived_.notify_one();
}

bool Mailbox::full() const {
  const std::lock_guard lock(mutex_);
  return events_.size() >= max_;
}

Mailbox::Taken Mailbox::take(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, patience, [&] { return !events_.empty(); });
  Taken taken;
  taken.was_full = events_.size() >= max_;
  taken.events.swap(events_);
  return taken;
}

AnswerListener::AnswerListener(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<Mailbox> mailbox,
                               std::shared_ptr<Metrics> metrics, Options options)
    : vocabulary_(std::move(vocabulary)),
      mailbox_(std::move(mailbox)),
      metrics_(std::move(metrics)),
      options_(std::move(options)),
      text_(*vocabulary_, options_.text) {
  if (options_.first < 0) return;
  Event event{.choice = options_.choice, .text = {}, .logs = {}};
  std::string text = text_.put(options_.first);
  pending_logs_.push_back({.id = options_.first,
                           .bytes = text_.bytes(),
                           .logprob = std::numeric_limits<float>::quiet_NaN(),
                           .top = {},
                           .offset = text_.begin()});
  release(std::move(text), false, event);
  mailbox_->put(std::move(event));
}

void AnswerListener::release(std::string shown, bool all, Event& event) {
  released_ += count_characters(shown);
  event.text += shown;
  event.written = std::exchange(unreported_, 0);
  if (all || !event.text.empty()) event.tokens = std::exchange(pending_tokens_, {});
  while (!pending_logs_.empty() && (all || pending_logs_.front().offset < released_)) {
    event.logs.push_back(std::move(pending_logs_.front()));
    pending_logs_.pop_front();
  }
}

void AnswerListener::prompt_read(long long tokens, long long cached) {
  if (!options_.progress) return;
  const auto report = [&](long long read) {
    Event event{.choice = options_.choice, .text = {}, .logs = {}};
    event.progress = PromptProgress{read, cached};
    mailbox_->put(std::move(event));
  };
  if (!std::exchange(began_, true)) report(cached);
  report(tokens);
}

TokenLog AnswerListener::log_of(const SampledToken& token, std::string bytes, long long offset) const {
  TokenLog log{.id = token.token, .bytes = std::move(bytes), .logprob = token.logprob, .top = {}, .offset = offset};
  for (const auto& [id, logprob] : token.top_logprobs) {
    log.top.emplace_back(vocabulary_->piece(id, true), logprob);
    log.top_ids.push_back(id);
  }
  return log;
}

bool AnswerListener::written(const SampledToken& token) {
  const auto now = Clock::now();
  if (last_token_) metrics_->time_per_output_token.add(std::chrono::duration<double>(now - *last_token_).count());
  last_token_ = now;
  if (token.end) {
    // lm-evaluation-harness takes the last log probability for that of the token after the prompt, as vLLM has it.
    if (options_.first >= 0) pending_logs_.push_back(log_of(token, vocabulary_->piece(token.token, true), released_));
    return true;
  }
  ++unreported_;

  std::string text = text_.put(token.token);
  if (options_.tokens) pending_tokens_.push_back(token.token);
  if (options_.logs) pending_logs_.push_back(log_of(token, text_.bytes(), text_.begin()));
  Event event{.choice = options_.choice, .text = {}, .logs = {}};
  release(std::move(text), false, event);
  if (!event.text.empty() || !event.logs.empty())
    mailbox_->put(std::move(event));
  else
    unreported_ = event.written;
  return !text_.stopped();
}

void AnswerListener::memory(MemoryUpdate update) {
  Event event{.choice = options_.choice, .text = {}, .logs = {}};
  event.memory = std::make_shared<const MemoryUpdate>(std::move(update));
  mailbox_->put(std::move(event));
}

void AnswerListener::finished(Finish finish, const Usage& usage) {
  Event event{.choice = options_.choice, .text = {}, .logs = {}, .last = true, .finish = finish, .usage = usage};
  event.kept = std::move(kept_);
  event.stop_word = text_.stop_word();
  std::string rest = text_.finish();
  release(std::move(rest), !text_.stopped(), event);
  if (usage.tokens > 0) metrics_->time_to_first_token.add(usage.ttft_ms / 1000);
  mailbox_->put(std::move(event));
}

}  // namespace palimpsest
