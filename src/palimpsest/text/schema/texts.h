// The strings that a branch allows.
#pragma once

#include <memory>

#include "palimpsest/text/schema/branch.h"
#include "palimpsest/text/schema/session.h"

namespace palimpsest::schema {

Text text_of(const Branch& branch, Session& session);  // the same, with the same automaton, for the same constraints
Text simplified(std::shared_ptr<const Dfa> dfa);       // as characters of one set, if it is that
Dfa dfa_of(const Text& text, Session& session);

}  // namespace palimpsest::schema
