// How layers and heads share a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

class Split {
 public:
  // kAuto: kProfile where the model has one, else kUniform; a plan resolves it (evict/auto.cpp).
  // kDuo, kProfile: kFile with a file beside the model, model.duo or model.profile; a plan looks it up.
  enum Kind { kUniform, kAuto, kPyramid, kAda, kDuo, kProfile, kFile };

  Split(Kind kind = kUniform) : kind_(kind) {}  // not kFile
  explicit Split(std::string_view text);        // a kind's name; anything else is a file's
  std::string text() const;
  const std::string& file() const { return file_; }  // of kFile
  bool operator==(const Split&) const = default;
  bool operator==(Kind kind) const { return kind_ == kind; }
  bool is_beside_model() const { return kind_ == kDuo || kind_ == kProfile; }

 private:
  Kind kind_ = kUniform;
  std::string file_;
};

struct SplitOf {
  int budget = 0, guarded = 0;  // per head; guarded: protected tokens, part of the budget
  std::vector<int> heads = {};  // [layers] KV heads
  int min = 1;                  // min budget of a head
  int max = 0;                  // max that a factor gives a head, if less than `budget`: that; 0: no max
  std::function<std::uint64_t()> fingerprint = {};  // of the model; empty: not known, and any file will do
};

// Budgets, [heads of all layers]; empty: all have `budget`. `how` is
//
//   uniform   all have the same
//   pyramid   decreases from layer to layer (budget/pyramid.h)
//   ada       by scores, at a prompt's end (budget/ada.h): until then all have the same
//
// or the name of a file with one rule per line, `layer head tokens`, where * means all and later lines override earlier
// ones:
//
//   # two heads of layer 3 have a large budget, the others a small one
//   *  *  128
//   3  0  4096
//   3  5  1.5x     # of the part of the budget that protects no token (`palimpsest heads --profile`)
//
// What a factor gives beyond `max` goes to the other heads with factors, in proportion.
//
// A line `model FINGERPRINT` (16 hexadecimal digits) names the model that the file was made for; others refuse it.
//
// A head that no line names has `budget`. The word `streaming` instead of tokens marks DuoAttention's streaming heads
// (arXiv 2410.10819): they keep 320 tokens (in the paper 64 sinks and the newest 256), or half the budget if that is
// less; the heads that no line names share the rest of the total budget.
//
// Throws Error for an unreadable file, for heads that the model does not have, and for fewer tokens than `min`.
std::vector<int> split_budget(const Split& how, const SplitOf& of);

}  // namespace palimpsest
