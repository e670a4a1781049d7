// A method = policy x protection x budget x schedule x mechanism x positions: a preset, or spelled out.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/budget/split.h"
#include "palimpsest/cache/change.h"
#include "palimpsest/cache/mechanism.h"
#include "palimpsest/core/types.h"
#include "palimpsest/policy/options.h"

namespace palimpsest {

enum class Positions {
  kOriginal,  // a key keeps the rotation of its position in the text
  kCache,     // positions are ranks among the kept tokens; the query's rank is the last
  kAuto       // original while the text fits the trained context (kMaxOriginal at most), cache from then on
};
// Each token of the text takes a row of cosines and sines while it is at its original position and is rotated on read.
inline constexpr int kMaxOriginal = 32768;

// How `cache` positions are computed. All give the same result (to rounding).
enum class Rerotate {
  kAuto,        // two-query where the policy is sinks + window, else fused
  kTwoQuery,    // keys rotated once, on write; the query is rotated twice, for the window and for the sinks
  kFused,       // keys stored un-rotated, rotated to their rank on read
  kCachedHalf,  // keys and their rotate_half stored, combined with cos and sin on read (EQUIP)
  kRecompute,   // baseline: all kept keys rotated into a copy in every step
  kDelta        // keys stored rotated to their rank; a compaction rotates moved keys again (Lazy Pruning, eq. 9)
};

// When evictions happen.
enum class Schedule {
  kStep,        // when the budget is exceeded by `interval` tokens, in prefill chunks and in decode
  kPrompt,      // once, at the prompt's end; then the cache grows
  kPromptStep,  // not before the prompt's end; then as kStep
  kPage         // when the budget is exceeded by a page
};

// A number of tokens, or a share of a budget.
struct Share {
  int tokens = 0;
  double part = 0;  // in (0, 1): share of the budget, rounded down; 0: use `tokens`

  constexpr Share(int count = 0) : tokens(count) {}  // NOLINT: protection = {.sinks = 4}
  static constexpr Share of_budget(double part) {
    Share share;
    share.part = part;
    return share;
  }
  constexpr int of(int budget) const { return part > 0 ? static_cast<int>(part * budget + 1e-9) : tokens; }
  bool operator==(const Share&) const = default;
};

// What mechanism merge does with a victim.
enum class Join {
  kClass,  // merges it into the most similar kept token, or drops it (EMS)
  kNext    // adds shares of its value to the tokens after it, at random (CaM)
};

// The position that a merged token's key is rotated to.
enum class MergePosition { kRepresentative, kOwn };

// How similar a victim is to a kept token: the cosine of their un-rotated keys, of their values, the product of both
// (EMS), or the product where negative cosines count as 0: two opposite keys with opposite values are not similar.
enum class Similarity { kProduct, kKey, kValue, kClipped };

// The key of a cluster, up to its norm: the weighted mean of its tokens' unit keys, which is shorter than they are
// (EMS); or the unit vector in its direction.
enum class MergedKey { kMean, kUnit };

// The score of a page: the mean of its tokens' scores; or, for ||v|| / ||k||, the ratio of the norms of all its values
// and keys (PagedEviction, algorithm 1 and line 6 of algorithm 3).
enum class PageScore { kMean, kNorms };

struct Protection {
  static constexpr Share kHalf = Share::of_budget(0.5);  // H2O's `recent`
  // The first tokens of the sequence and the newest are never evicted. A share for `sinks` is of the method's budget;
  // for `recent` of each head's own budget, with split ada and pyramid of the method's.
  Share sinks = 0, recent = 0;
  // Positions that are never evicted: sorted, disjoint, not adjacent. Each counts in the budget, also before it is
  // read.
  std::vector<PositionRange> pins = {};
  // pin=prompt: the prompt, whose positions pin_prompt() sets. A plan needs them.
  bool prompt = false;
  bool operator==(const Protection&) const = default;
};
inline constexpr int kMaxPins = 64;
inline constexpr int kMaxReferences = 256;  // of Method::references: a fit costs their square

inline constexpr int kMaxTokens = 1 << 30;  // bounds budget + every, and budget x gamma
// Method::budget, until a plan is made (evict/resolve.cpp):
inline constexpr int kAutoBudget = -1;  // the model's trained context
inline constexpr int kByteBudget = -2;  // Method::budget_bytes

struct Method {
  std::string name = "full";     // the preset it came from
  std::string policy = "none";   // "none": nothing is ever evicted; kAutoPolicy
  PolicyOptions of_policy = {};  // its own options
  Protection protection;
  int budget = 0;                // max tokens after an eviction, the next one included; 0: unbounded; kAutoBudget, ...
  std::size_t budget_bytes = 0;  // with kByteBudget
  Split split = {};              // how layers and heads share the budget (budget/split.h)
  Schedule schedule = Schedule::kStep;
  // Schedule prompt+step: max tokens held while a prompt is read, chunk by chunk: more than these are evicted at the
  // end of each chunk. At the prompt's end all but the budget are. 0: the whole prompt; kAutoBudget: as a budget.
  int prompt_max = 0;
  // Lazy Pruning's options: `every` (R), `slack` (sigma), `max-drop` (delta), `overlap` (O), `refresh` (B), `evict`.
  //
  //   budget = sinks + window + slack + overlap + refresh     C_cap, equation 3
  //   target()        what an eviction leaves: budget - slack
  //   interval        evicts when target() is exceeded by so many tokens, equation 8; 0: never
  //   max_tokens()    what a query attends to at most: target() + interval, less one if evictions make room for it
  int interval = 1;
  int headroom = 0;
  // Max tokens per eviction after the prompt; 0: unlimited. Then each step evicts until the budget is reached. More are
  // evicted only where a query would attend to more than it may.
  int max_drop = 0;
  int overlap = 0, spare = 0;  // victims kept until the next eviction: the newest, and some evenly spaced by age
  // When a step evicts: before its token is inserted, with room for it; or after its forward pass (the paper's order),
  // in which the token is one more.
  bool evict_after = false;
  Mechanism mechanism = Mechanism::kInPlace;
  int page = 0;  // mechanism block, schedule page: tokens that are evicted at once; 0: a page of the cache
  PageScore page_score = PageScore::kMean;  // mechanism block
  Positions positions = Positions::kOriginal;
  Rerotate rerotate = Rerotate::kAuto;
  int gamma = 4;     // mechanism merge: a budget of B holds up to gamma * B tokens, merged ones included
  float tau = 0.6F;  // mechanism merge: min similarity of a victim to the token it is merged into; 1: no merging
  Join join = Join::kClass;                                       // mechanism merge
  MergePosition merge_position = MergePosition::kRepresentative;  // mechanism merge
  Similarity similarity = Similarity::kClipped;                   // join class
  MergedKey merged_key = MergedKey::kUnit;                        // join class
  // Join class: a victim that is merged into no token counts among the gamma * B until its score is the lowest (EMS's
  // zero class). Queries do not attend to it.
  bool zero_class = false;
  // Evicted tokens go to a second tier (cache/recall_tier.h); each query attends to the best pages of it, of 16 tokens,
  // beside the kept tokens. 0: none.
  int recall = 0;
  int recall_every = 1;                    // queries of a step of one token choose pages at each such position
  CacheType recall_type = CacheType::kQ4;  // of keys and values in that tier
  int recall_max = 65536;                  // max tokens of a head in it; then the oldest page is replaced
  double recall_heads = 1;  // the part of the heads that have such a tier: those with the greatest shares of a budget
  // The method's cache only drafts; a second cache of the same text, which keeps all tokens, verifies: the text is that
  // of method full (engine/speculation/lossless_drafter.h).
  bool lossless = false;
  int references = 32;          // mechanism match: the last queries to whose attention outputs it fits
  std::string scorer = "auto";  // policies trained on a model: file of weights; "auto": beside the model's
  bool cache = true;  // false: no cache; sinks + the newest tokens are recomputed for every token (a baseline)

  bool operator==(const Method&) const = default;
  const MechanismTraits& how() const { return traits(mechanism); }
  int kept_choice() const { return recall_every > 1 ? recall : 0; }  // pages of the second tier
  bool evicts() const { return budget != 0 && interval > 0; }
  bool bounded() const { return evicts() && schedule != Schedule::kPrompt; }  // constant memory
  // `of_budget`: the method's budget, or a head's.
  int target(int of_budget) const { return of_budget - headroom; }
  int target() const { return target(budget); }
  int max_tokens(int of_budget) const { return target(of_budget) + interval - (evict_after ? 0 : 1); }
  // Schedule prompt+step with prompt_max: what the end of a chunk leaves.
  int max_while_reading(int of_budget) const { return std::max(prompt_max, target(of_budget)); }
  int set_aside() const { return headroom + overlap + spare; }  // part of the budget that no policy chooses
  bool joins_classes() const { return how().merges && join == Join::kClass; }
  // Each slot remembers the norm of its own key, which the mean of a cluster is not.
  bool keeps_norms() const { return joins_classes() && merged_key == MergedKey::kMean; }
  // Each slot remembers the square of its key's norm.
  bool scores_by_norms() const { return how().whole_pages && page_score == PageScore::kNorms; }
  int page_of(int of_cache) const { return page > 0 ? page : of_cache; }
  // Pins at the start of the text are sinks; pins() are the others.
  int sinks() const { return std::max(protection.sinks.of(budget), pins_at_start().second); }
  std::span<const PositionRange> pins() const { return std::span(protection.pins).subspan(pins_at_start().first); }
  int pinned() const {
    Position tokens = 0;
    for (const PositionRange& pin : pins()) tokens += pin.last - pin.first;
    return static_cast<int>(std::min<Position>(tokens, kMaxTokens));
  }
  int recent() const { return protection.recent.of(budget); }
  int recent(int of_head) const {
    return split == Split::kAda || split == Split::kPyramid ? recent() : protection.recent.of(of_head);
  }
  bool waits_for_prompt() const { return schedule == Schedule::kPrompt || schedule == Schedule::kPromptStep; }
  // Heads' budgets are computed at the prompt's end, from scores (ada) or the number of tokens (pyramid).
  bool splits_at_prompt_end() const { return waits_for_prompt() && (split == Split::kAda || split == Split::kPyramid); }
  // ... at each decision, from scores (ada): when a head of a layer has too many tokens, all its heads are compared.
  bool splits_at_decisions() const { return !waits_for_prompt() && split == Split::kAda; }
  bool budgets_change() const { return splits_at_prompt_end() || splits_at_decisions(); }
  // Keeps exactly the sinks and a window of the newest tokens. (Not with mechanism block, which keeps the sinks' whole
  // page. With recall a chunk's queries see the tokens that will be evicted after it, as with other policies.)
  bool windowed() const {
    return policy == "recent" && spare == 0 && !how().whole_pages && pins().empty() && recall == 0;
  }
  // The window moves with every token: a masked chunk of a prompt gives exactly the result of token by token.
  bool strict() const { return windowed() && schedule == Schedule::kStep && interval == 1; }

 private:
  std::pair<std::size_t, int> pins_at_start() const;  // how many, and their end
};

struct MethodRow {
  std::string_view name, paper, summary;
  Method preset;
};
const std::vector<MethodRow>& methods();
inline constexpr std::string_view kAutoMethod = "auto";  // the default of run, chat and serve: see evict/auto.h
inline constexpr std::string_view kAutoPolicy = "auto";  // its policy: see evict/auto.h

// "NAME" or "NAME:key=value,key=value". Throws Error. Does not validate: flags may follow.
Method parse_method(std::string_view text);
// Sets one key ("budget", "256"), as command-line flags after --method do.
void set_option(Method& method, std::string_view key, std::string_view value);
std::string get_option(const Method& method, std::string_view key);
// Throws Error for what is illegal whatever the model (evict/legality.h): budget < sinks + recent + 1, a budget without
// a policy, ... MethodPlan checks what depends on the model.
void validate(const Method& method);
// As text; parse_method() reads both.
std::string spell_out(const Method& method);      // every key: reproducible when presets change
std::string spell_short(const Method& method);    // its preset and the keys that differ: "streaming:budget=512"
std::string spell_changes(const Method& method);  // the keys that differ from `full`, without a name; may be ""
// Positions that a method should also pin. Throws Error for more than kMaxPins spans. Not for methods without a policy.
void add_pins(Method& method, std::span<const PositionRange> pins);
// pin=prompt, once the prompt is known to be so many tokens. No effect on other methods. Throws Error as add_pins().
void pin_prompt(Method& method, Position tokens);
// The protected tokens, "4 sinks, 300 pinned and the newest 32"; "" if the method never evicts.
std::string spell_protection(const Method& method);

struct MethodKey {
  std::string name, values, meaning;
};
std::vector<MethodKey> method_keys();  // for help texts

}  // namespace palimpsest
