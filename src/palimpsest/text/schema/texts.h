// The strings that a branch allows.
#pragma once

#include <memory>

#include "palimpsest/text/schema/branch.h"
#include "palimpsest/text/schema/session.h"

namespace palimpsest::schema {

// min to max characters of `set`; or, with `dfa`, the texts of the automaton.
struct Text {
  CharSet set = all_characters();
  std::size_t min = 0, max = kUnbounded;
  std::shared_ptr<const Dfa> dfa = nullptr;
  bool empty() const { return dfa != nullptr ? dfa->empty() : max < min || (min > 0 && set.empty()); }
  bool any() const { return dfa == nullptr && min == 0 && max == kUnbounded && set == all_characters(); }
};

Text text_of(const Branch& branch, Session& session);
Text simplified(std::shared_ptr<const Dfa> dfa);  // as characters of one set, if it is that
Dfa dfa_of(const Text& text, Session& session);

}  // namespace palimpsest::schema
