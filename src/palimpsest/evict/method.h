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
  kAuto,        // two-query where the policy is sinks + window, else fused
  kTwoQuery,    // keys rotated once for ever; the query is rotated twice, for the window and for the sinks
  kFused,       // keys stored un-rotated, rotated at their rank while they are read
  kCachedHalf,  // keys and their rotate_half stored, combined with cos and sin while they are read (EQUIP)
  kRecompute,   // baseline: all kept keys rotated anew into a copy in every step
  kDelta  // keys rotated at their rank; a compaction turns those that moved by the difference (Lazy Pruning, eq. 9)
};

// When evictions happen.
enum class Schedule {
  kStep,        // whenever `every` tokens are too many: in each chunk of a prompt and while decoding
  kPrompt,      // once, when the prompt was read; the cache then grows
  kPromptStep,  // the prompt is read whole; from its end on as kStep
  kPage         // when a page's worth of tokens is too many
};

// Tokens: so many, or a share of a budget.
struct Share {
  int tokens = 0;
  double part = 0;  // in (0, 1): of the budget, rounded down; 0: `tokens` holds

  constexpr Share(int count = 0) : tokens(count) {}  // NOLINT: protection = {.sinks = 4}
  static constexpr Share of_budget(double part) {
    Share share;
    share.part = part;
    return share;
  }
  constexpr int of(int budget) const { return part > 0 ? static_cast<int>(part * budget + 1e-9) : tokens; }
  bool operator==(const Share&) const = default;
};

// What mechanism merge does with victims.
enum class Join {
  kClass,  // a token goes over into the one most like it, or is gone (EMS)
  kNext    // a share of its value is added to those of the tokens that follow it, by chance (CaM)
};

// Where a merged token stands in the text.
enum class MergePosition { kRepresentative, kOwn };

struct Protection {
  static constexpr Share kHalf = Share::of_budget(0.5);  // H2O's `recent`
  // The first tokens of the sequence are never evicted, the same in all heads; nor are the newest, of which a share is
  // of each head's own budget, with split ada and pyramid of the method's.
  Share sinks = 0, recent = 0;
  bool operator==(const Protection&) const = default;
};

struct Method {
  std::string name = "full";    // the preset it came from
  std::string policy = "none";  // "none": nothing is ever dropped
  Protection protection;
  int budget = 0;                 // tokens a decode step attends to, the new one included; 0: unbounded
  std::string split = "uniform";  // how layers and heads share it (budget/split.h)
  Schedule schedule = Schedule::kStep;
  int interval = 1;  // evict when `every` tokens are too many: up to every - 1 more than the budget are attended to
  int headroom = 0;  // an eviction leaves so many tokens less than the budget
  int max_drop = 0;  // an eviction drops so many tokens at most; 0: no bound
  int spare = 0;     // of the tokens that an eviction would drop, so many stay until the next, evenly spaced by age
  Mechanism mechanism = Mechanism::kInPlace;
  Positions positions = Positions::kOriginal;
  Rerotate rerotate = Rerotate::kAuto;
  int gamma = 4;             // mechanism merge: a budget of B holds up to gamma * B tokens, merged ones included
  float tau = 0.6F;          // mechanism merge: a victim joins a token that it is as similar to as that; 1: none does
  Join join = Join::kClass;  // mechanism merge
  MergePosition merge_position =
      MergePosition::kRepresentative;  // mechanism merge: whose place a merged token's key is rotated at
  std::string scorer = "auto";         // of policies that were made for a model: their file; "auto": beside the model's
  bool cache = true;  // false: nothing is kept; sinks + the newest tokens are read anew for every token (a baseline)

  bool operator==(const Method&) const = default;
  bool evicts() const { return budget > 0; }
  bool bounded() const { return evicts() && schedule != Schedule::kPrompt; }  // constant memory
  int sinks() const { return protection.sinks.of(budget); }
  int recent() const { return protection.recent.of(budget); }
  int recent(int of_head) const {
    return split == "ada" || split == "pyramid" ? recent() : protection.recent.of(of_head);
  }
  // Heads' budgets are known when a prompt was read: by scores, or by how many tokens there are.
  bool splits_at_prompt_end() const {
    const bool whole = schedule == Schedule::kPrompt || schedule == Schedule::kPromptStep;
    return split == "ada" || (split == "pyramid" && whole);
  }
  // What is kept is the sinks and the newest tokens without a gap: a window. (The page that holds the sinks holds
  // more.)
  bool windowed() const { return policy == "recent" && spare == 0 && mechanism != Mechanism::kBlock; }
  // The window moves with every token: a chunk of a prompt can be masked to be exactly what token by token would give.
  bool strict() const {
    return windowed() && schedule == Schedule::kStep && interval == 1 && headroom == 0 && max_drop == 0;
  }
};

struct MethodRow {
  std::string_view name, paper, summary;
  Method preset;
};
const std::vector<MethodRow>& methods();

// "NAME" or "NAME:key=value,key=value". Throws Error that names the fault and what is allowed. Not validated yet: flags
// may follow.
Method parse_method(std::string_view text);
// Sets one key ("budget", "256"): what command-line flags do after --method.
void set_option(Method& method, std::string_view key, std::string_view value);
std::string get_option(const Method& method, std::string_view key);
// What the method alone decides (evict/legality.h) throws Error: budget < sinks + recent + 1, a budget without a
// policy,
// ... What depends on the model is checked where a plan is made (evict/method_plan.h).
void validate(const Method& method);
// As text; parse_method() reads both.
std::string spell_out(const Method& method);      // every choice: results that must be repeatable when presets change
std::string spell_short(const Method& method);    // its preset, and what differs from it: "streaming:budget=512"
std::string spell_changes(const Method& method);  // what differs from `full`, without a name; "" if nothing does
// "4 sinks and the newest 32": the protected tokens, printed beside a result; "" of a method that never evicts.
std::string spell_protection(const Method& method);

struct MethodKey {
  std::string_view name, values, meaning;
};
std::vector<MethodKey> method_keys();  // for help texts

}  // namespace palimpsest
