// Runs tokens through a decoder and one cache with evictions of every kind, to compare two attention paths.
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
  int budget = 0;          // 0: nothing is evicted
  bool by_window = false;  // evicts the oldest tokens except sinks; else random ones
  bool shared = true;      // one slot table; else each head evicts its own
  bool uneven = false;     // and has its own budget: see budget_of
  Mechanism mechanism = Mechanism::kInPlace;
  CacheType type = CacheType::kF32;
  int chunk = 1;
  bool weights = false;
  int undo = 0;  // tokens that some steps remove and read again
};

// Tokens that a slot table keeps: the budget, or (uneven) half of it to all.
int budget_of(const TeacherForced& how, int table);

struct Trace {
  std::vector<float> logits;   // [tokens][vocabulary]
  std::vector<float> weights;  // of all steps, layers and heads, concatenated
  std::size_t bytes = 0;       // of the cache, at the end
};

Trace run(const std::shared_ptr<const Model>& model, const TeacherForced& how, const std::vector<TokenId>& tokens);

// Maximum over rows of max |a - b| / max |b|; infinite if an element of a is not finite.
double max_relative_error(const std::vector<float>& a, const std::vector<float>& b, int width);

// Sinks + window with both kinds of positions and both ways to rotate again; random victims with one table or one per
// head; no rotation; nothing evicted; chunks and single tokens; each mechanism.
std::vector<TeacherForced> every_kind(int budget, CacheType type);

}  // namespace palimpsest::testing
