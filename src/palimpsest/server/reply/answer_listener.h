// Carries an answer from the scheduler's thread to a connection's: tokens become text, queued in a bounded mailbox.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/engine/scheduler/request.h"
#include "palimpsest/server/metrics.h"
#include "palimpsest/text/text_stream.h"

namespace palimpsest {

struct TokenLog {
  TokenId id = -1;
  std::string bytes;  // may end inside a UTF-8 character
  float logprob = 0;  // NaN: it has none (the first token of a text)
  std::vector<std::pair<std::string, float>> top;
  std::vector<TokenId> top_ids = {};
  long long offset = 0;  // of its text in the answer's text, in characters
};

struct PromptProgress {
  long long read = 0, cached = 0;  // tokens; `read` includes the cached ones
};

struct Event {
  int choice = 0;
  std::string text;                  // whole characters; may be empty
  std::vector<TokenLog> logs;        // of this text's tokens, if log probabilities are requested
  std::vector<TokenId> tokens = {};  // written since the event before, if AnswerListener::Options::tokens
  long long written = 0;             // tokens since the event before
  std::shared_ptr<const MemoryUpdate> memory = {};  // an update of the memory map: an event of its own
  std::optional<PromptProgress> progress = {};      // likewise
  bool last = false;                                // the members below are set only in the last event
  Finish finish = Finish::kCancelled;
  Usage usage = {};
  std::string stop_word = {};                     // that ended the text
  std::shared_ptr<const KeptSequence> kept = {};  // the sequence, if requested: RequestListener::kept
};

// The events of all choices of one HTTP request.
class Mailbox {
 public:
  explicit Mailbox(std::size_t max) : max_(max) {}
  void put(Event event);
  bool full() const;
  struct Taken {
    std::vector<Event> events;  // empty: timed out
    bool was_full = false;      // the caller must then call Scheduler::wake()
  };
  Taken take(std::chrono::milliseconds patience);

 private:
  const std::size_t max_;
  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Event> events_;
};

class AnswerListener final : public RequestListener {
 public:
  struct Options {
    int choice = 0;
    TextStream::Options text;
    bool logs = false, tokens = false, progress = false;
    TokenId first = -1;  // the text begins with this token of the prompt, without a log probability; -1: none
  };
  AnswerListener(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<Mailbox> mailbox,
                 std::shared_ptr<Metrics> metrics, Options options);  // throws Error for bad stop strings

  bool ready() override { return !mailbox_->full(); }
  void prompt_read(long long tokens, long long cached) override;
  bool written(const SampledToken& token) override;
  void memory(MemoryUpdate update) override;
  void kept(std::shared_ptr<const KeptSequence> sequence) override { kept_ = std::move(sequence); }
  void finished(Finish finish, const Usage& usage) override;

 private:
  TokenLog log_of(const SampledToken& token, std::string bytes, long long offset) const;
  // Appends `shown` to the event, with all held logs whose text begins before its end.
  void release(std::string shown, bool all, Event& event);

  std::shared_ptr<const Vocabulary> vocabulary_;
  std::shared_ptr<Mailbox> mailbox_;
  std::shared_ptr<Metrics> metrics_;
  Options options_;
  TextStream text_;
  long long released_ = 0;    // characters released so far
  bool began_ = false;        // the first progress was reported
  long long unreported_ = 0;  // tokens written since the last event
  std::deque<TokenLog> pending_logs_;
  std::vector<TokenId> pending_tokens_;
  std::optional<Clock::time_point> last_token_;
  std::shared_ptr<const KeptSequence> kept_;
};

}  // namespace palimpsest
