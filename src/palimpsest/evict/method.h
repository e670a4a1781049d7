// A method = policy x protection x budget x schedule x mechanism x positions: a row of one table, or spelled out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/cache/slots.h"
#include "palimpsest/core/types.h"

namespace palimpsest {

enum class Positions {
  kOriginal,  // a key keeps the rotation of the place it was written at
  kCache      // positions are ranks among the kept tokens; the query sits at the end
};

// How `cache` positions are kept right. All the same result (to rounding).
enum class Rerotate {
  kAuto,      // two-query where the policy is sinks + window, else late
  kTwoQuery,  // keys rotated once for ever; the query is rotated twice, for the window and for the sinks
  kLate       // keys stored un-rotated, rotated at their rank while they are read
};

struct Protection {
  int sinks = 0;   // the first tokens of the sequence are never dropped
  int recent = 0;  // nor are the newest
  bool operator==(const Protection&) const = default;
};

struct Method {
  std::string name = "full";    // the preset it came from
  std::string policy = "none";  // "none": nothing is ever dropped
  Protection protection;
  int budget = 0;  // tokens a decode step attends to, the new one included; 0: unbounded
  int every = 1;   // evict when `every` tokens are too many: up to every - 1 more than the budget are attended to
  Mechanism mechanism = Mechanism::kInPlace;
  Positions positions = Positions::kOriginal;
  Rerotate rerotate = Rerotate::kAuto;

  bool operator==(const Method&) const = default;
  bool bounded() const { return budget > 0; }
  // Sinks + window: a chunk of a prompt can be masked to be exactly what token by token would give.
  bool windowed() const { return policy == "recent"; }
};

struct MethodRow {
  std::string_view name, paper, summary;
  Method preset;
};
const std::vector<MethodRow>& methods();

// "NAME" or "NAME:key=value,key=value"; keys: budget, sinks, recent, every, policy, mechanism, positions, rerotate.
// Throws Error that names the fault and what is allowed. Not validated yet: flags may follow.
Method parse_method(std::string_view text);
// Sets one key ("budget", "256"): what command-line flags do after --method.
void set_option(Method& method, std::string_view key, std::string_view value);
// Impossible combinations (budget < sinks + recent + 1, a budget without a policy, ...) throw Error. What depends on
// the model (cache positions need rotary positions) is checked where the model is known.
void validate(const Method& method);
std::string spell_out(const Method& method);  // every choice; parse_method(spell_out(m)) == m

}  // namespace palimpsest
