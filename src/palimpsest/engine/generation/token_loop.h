// The token loop of a text: after each step its next tokens are sampled and the step's drafts verified, until the text
// ends. generate() and the scheduler give it their steps:
//
//   drafts()   tokens that may follow: for Sequence::read(last(), drafts)
//   sample()   optional: samples the first token of the step, on any thread
//   advance()  samples the others: while the newest token is the next draft, the logits after it are there. Gives each
//              to put(), which says how the text ends with it
//   settle()   how many drafts are accepted
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <utility>

#include "palimpsest/core/shared_tokens.h"
#include "palimpsest/engine/speculation/speculation.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// How a text ends.
enum class Finish {
  kEnd,        // the model ended its text
  kLength,     // max_tokens
  kStopped,    // the reader of the text stopped it: a stop string
  kCancelled,  // by the user, or the end of the server
  kDeadline,
  kFailed
};
const char* name_of(Finish finish);  // "end", "length", "stop", "cancelled", "deadline", "failed"

struct SampledToken {
  TokenId token = -1;
  bool end = false;                                              // an end-of-text or stop token, not part of the text
  bool given = false;                                            // of TokenLoop::Options::given
  float logprob = 0;                                             // ln of its probability, before any sampler option
  std::span<const std::pair<TokenId, float>> top_logprobs = {};  // likeliest first; valid during the call
};

class TokenLoop {
 public:
  struct Options {
    long long max_tokens = -1;            // -1: unlimited
    bool ignore_end = false;              // end-of-text tokens are part of the text
    std::span<const TokenId> given = {};  // the first tokens, instead of sampled ones
  };
  // `vocabulary` and `speculation` may be nullptr. All outlive it.
  TokenLoop(const Options& options, Sampler& sampler, const Vocabulary* vocabulary, Speculation* speculation)
      : options_(options), sampler_(&sampler), vocabulary_(vocabulary), speculation_(speculation) {}

  // Drafts for the next step, at most `max`, and not beyond the text's end.
  std::span<const TokenId> drafts(long long max) {
    const long long left = options_.max_tokens < 0 ? max : std::min(max, options_.max_tokens - tokens_ - 1);
    drafts_ = speculation_ == nullptr ? std::span<const TokenId>() : speculation_->draft(left);
    return drafts_;
  }
  // `row`: the first of the logits that advance() will get. advance() throws what fails here.
  void sample(std::span<const float> row) noexcept;
  // `logits`: of the step, rows of `width`: of the token that was read, and of the drafts that were. put(token, row)
  // returns an ending, or nullopt. Returns how the text ends with the last token; nullopt: it goes on.
  template <typename Put>
  std::optional<Finish> advance(std::span<const float> logits, std::size_t width, Put put);
  // After advance(), also if it threw: accept(n) gets the number of accepted drafts.
  template <typename Accept>
  void settle(Accept accept) {
    const int accepted = std::exchange(accepted_, 0), read = std::exchange(read_, 0);
    accept(accepted);
    drafts_ = {};
    if (speculation_ != nullptr) speculation_->verified(read, accepted);
  }

  TokenId last() const { return last_; }  // the newest token; -1: none
  void resume(TokenId last) { last_ = last; }
  long long tokens() const { return tokens_; }  // sampled and given, an end-of-text token included

 private:
  bool next_is_given() const { return tokens_ < std::ssize(options_.given); }
  TokenId next_token(std::span<const float> row);
  bool ends_text(TokenId token) const {
    return (vocabulary_ != nullptr && !options_.ignore_end && vocabulary_->is_end(token)) || sampler_->stops_at(token);
  }

  Options options_;
  Sampler* sampler_;
  const Vocabulary* vocabulary_;
  Speculation* speculation_;
  std::span<const TokenId> drafts_;  // of the step
  int read_ = 0, accepted_ = 0;      // of the drafts: whose logits are there, that are part of the text
  std::optional<TokenId> sampled_;   // by sample(), until advance()
  std::exception_ptr failure_;       // of sample()
  TokenId last_ = -1;
  long long tokens_ = 0;
};

template <typename Put>
std::optional<Finish> TokenLoop::advance(std::span<const float> logits, std::size_t width, Put put) {
  read_ = static_cast<int>(logits.size() / width) - 1;
  for (accepted_ = 0;; ++accepted_) {
    const auto row = logits.subspan(at(accepted_) * width, width);
    SampledToken sampled;
    sampled.given = next_is_given();
    sampled.token = next_token(row);
    last_ = sampled.token;
    ++tokens_;
    sampled.end = !sampled.given && ends_text(sampled.token);
    if (speculation_ != nullptr && !sampled.end) speculation_->append({&last_, 1});
    const std::optional<Finish> finish = put(sampled, row);
    if (sampled.end) return Finish::kEnd;
    if (finish) return finish;
    if (tokens_ == options_.max_tokens) return Finish::kLength;
    if (accepted_ == read_ || last_ != drafts_[at(accepted_)]) return std::nullopt;
  }
}

}  // namespace palimpsest
