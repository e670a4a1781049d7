// Speculative decoding of one text: a drafter, and how many drafts to read.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "palimpsest/engine/speculation/draft_length.h"
#include "palimpsest/engine/speculation/draft_times.h"
#include "palimpsest/engine/speculation/drafter.h"

namespace palimpsest {

inline constexpr int kMaxDrafts = 63;

struct DraftOptions {
  int max = 8;  // drafts in a step
  int min = 0;  // fewer are not read
  bool adaptive =
      true;  // fewer drafts, or none, while they do not pay (engine/speculation/draft_length.h); false: always `max`
  // The price of a draft in steps of one token; nullopt: measured (engine/speculation/draft_price.h).
  std::optional<double> price = {};
  // The price follows the times of this text's own steps (engine/speculation/draft_times.h), unless `price` is given:
  // of drafts that cost more or less as the text grows.
  bool timed = false;
};

struct DraftCounts {
  long long steps = 0, drafts = 0, accepted = 0;  // steps with drafts; drafts that were read; those that were accepted
  DraftCounts& operator+=(const DraftCounts& other) {
    steps += other.steps, drafts += other.drafts, accepted += other.accepted;
    return *this;
  }
};

class Speculation {
 public:
  // `price`: as measured; `options` may have another.
  Speculation(std::unique_ptr<Drafter> drafter, const DraftOptions& options, const DraftPrice& price = DraftPrice())
      : drafter_(std::move(drafter)),
        options_(options),
        length_(options.max, options.price ? DraftPrice(*options.price) : price) {
    options_.timed = options.timed && options.adaptive && !options.price;
  }

  // The text's next tokens: the prompt, then those that were sampled.
  void append(std::span<const TokenId> tokens) { drafter_->append(tokens); }
  // Drafts for the next step, at most `max`; valid until the next draft().
  std::span<const TokenId> draft(long long max);
  // How many drafts the step read, and how many of them were accepted.
  void verified(int drafts, int accepted);
  const DraftCounts& counts() const { return counts_; }

 private:
  int wanted();  // drafts in the next step

  std::unique_ptr<Drafter> drafter_;
  DraftOptions options_;
  DraftLength length_;
  DraftTimes times_;  // DraftOptions::timed
  DraftCounts counts_;
};

}  // namespace palimpsest
