// How many drafts the next step should read: the number that gives the most tokens per time, from how many were
// accepted lately. Does not depend on measured times, so a run can be repeated.
#pragma once

namespace palimpsest {

class DraftLength {
 public:
  // `cost`: of one more token in a step, relative to a step of one token.
  explicit DraftLength(int max, double cost = 0.08) : max_(max), cost_(cost) {}

  // For the next step; 0: drafts do not pay. Then every 16th step, and more and more rarely, tries one draft.
  int next();
  // The result of a step with drafts.
  void add(int drafts, int accepted);
  // The estimated probability that a draft is accepted if those before it do.
  double acceptance() const { return stood_ / (stood_ + fell_); }

 private:
  int max_;
  double cost_;
  double stood_ = 2, fell_ = 1;  // drafts, with weights that fall by a tenth with each step
  int pause_ = 16, left_ = 0;    // steps between tries while drafts do not pay
};

}  // namespace palimpsest
