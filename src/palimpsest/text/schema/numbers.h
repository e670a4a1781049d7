// The numbers that a branch allows, as an automaton over their digits.
#pragma once

#include <memory>

#include "palimpsest/text/schema/branch.h"
#include "palimpsest/text/schema/session.h"

namespace palimpsest::schema {

// Without an exponent; at most 15 digits, unless a bound has more. Integers have no fraction. nullptr: any number, or
// any integer, as branch.types says.
std::shared_ptr<const Dfa> numbers_of(const Branch& branch, Session& session);

}  // namespace palimpsest::schema
