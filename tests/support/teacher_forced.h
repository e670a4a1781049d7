// Runs tokens through a decoder and one cache with evictions of every kind: what two attention paths are compared on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "palimpsest/cache/cache.h"
#include "palimpsest/graph/decoder.h"

namespace palimpsest::testing {

struct TeacherForced {
  std::string name;
  AttentionRule rule = {};
  int budget = 0;          // 0: nothing leaves
  bool by_window = false;  // the oldest that are no sinks leave; else any, drawn by lot
  bool shared = true;      // one slot table; else every head draws for itself
  bool uneven = false;     // and keeps another number of tokens: see budget_of
  Mechanism mechanism = Mechanism::kInPlace;
  CacheType type = CacheType::kF32;
  int chunk = 1;
  bool weights = false;
  int undo = 0;  // now and then so many tokens are taken back and read again
};

// Tokens that a slot table keeps: the budget, or between half of it and all.
int budget_of(const TeacherForced& how, int table);

struct Trace {
  std::vector<float> logits;   // [tokens][vocabulary]
  std::vector<float> weights;  // of every step, layer and head, one after the other
  std::size_t bytes = 0;       // of the cache, in the end
};

Trace run(const std::shared_ptr<const Model>& model, const TeacherForced& how, const std::vector<TokenId>& tokens);

// Greatest over rows of max |a - b| / max |b|; infinite if any a is not finite.
double max_relative_error(const std::vector<float>& a, const std::vector<float>& b, int width);

// Sinks + window with both position kinds and both ways to re-rotate, any victims in one table or in each head's own,
// no rotation, everything kept; chunked and single; each mechanism.
std::vector<TeacherForced> every_kind(int budget, CacheType type);

}  // namespace palimpsest::testing
