// How many drafts the next step should read: the number that gives the most tokens per time, from how many were
// accepted lately and from what drafts cost.
#pragma once

#include <utility>

#include "palimpsest/engine/speculation/draft_price.h"

namespace palimpsest {

class DraftLength {
 public:
  explicit DraftLength(int max, DraftPrice price = DraftPrice()) : max_(max), price_(std::move(price)) {}

  // For the next step; 0: drafts do not pay. Then every 16th step, and more and more rarely, tries one draft; never if
  // drafts would not pay if all were accepted.
  int next();
  // The result of a step with drafts.
  void add(int drafts, int accepted);
  void set_price(DraftPrice price) { price_ = std::move(price); }
  // The estimated probability that a draft is accepted if those before it do.
  double acceptance() const { return accepted_ / (accepted_ + rejected_); }

 private:
  int best(double acceptance) const;

  int max_;
  DraftPrice price_;
  double accepted_ = 2, rejected_ = 1;  // drafts, with weights that fall by a tenth with each step
  int pause_ = 16, left_ = 0;           // steps between tries while drafts do not pay
};

}  // namespace palimpsest
