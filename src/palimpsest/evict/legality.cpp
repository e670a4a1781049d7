#include "palimpsest/evict/legality.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/plan_target.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

bool evicts(C c) {
  return c.method.policy != "none";
}
bool knows_budget(C c) {
  return c.method.budget >= 0;
}
bool always(C) {
  return true;
}
bool never(C) {
  return false;
}
bool merges(C c) {
  return c.method.how().merges;
}
bool by_block(C c) {
  return c.method.how().whole_pages;
}
bool waits_for_prompt(C c) {
  return c.method.waits_for_prompt();
}
bool is_of_devices(CacheType type) {  // ggml's operators read and write it
  return kv_format(type).elementwise() || type == CacheType::kQ8_0;
}
bool reads_cache(C c) {  // keys or values of tokens in the cache
  return c.signals.rows() && !c.signals.score_on_insert;
}
bool weights_as_they_come(C c) {
  return c.signals.weights() && !c.signals.attention_window;
}
std::string option(C c, std::string_view key) {
  return get_option(c.method, key);
}

// The min budget, given protected shares at the method's own budget; they grow with it.
long long min_budget(const Method& m) {
  return static_cast<long long>(m.sinks()) + m.recent() + m.pinned() + m.set_aside() + 1;
}
// The smallest legal budget, if protected shares leave any.
long long legal_budget(Method m) {
  const long long first = min_budget(m);
  for (int i = 0; i < 100 && min_budget(m) <= kMaxTokens; ++i) {
    if (min_budget(m) <= m.budget) return m.budget;
    m.budget = static_cast<int>(min_budget(m));
  }
  return first;
}

bool sets_clusters(const Method& m) {
  const Method plain;
  return m.similarity != plain.similarity || m.merged_key != plain.merged_key || m.zero_class != plain.zero_class;
}

// The first option that is set, and that the policy does not have; empty: none.
std::string foreign_option(C c) {
  for (const auto& [key, value] : c.method.of_policy)
    if (!has_option(c.method.policy, key)) return key;
  return "";
}

int page_of(C c) {
  return c.method.page_of(c.page_size);
}
// Full pages of a head, and the max number of pages that hold protected tokens.
int full_pages(C c) {
  return c.budget / page_of(c);
}
int guarded_pages(C c) {
  const auto pages = [&](int tokens) { return (tokens + page_of(c) - 1) / page_of(c); };
  const auto anywhere = [&](int tokens) { return tokens == 0 ? 0 : 1 + pages(tokens - 1); };
  int guarded = pages(c.method.sinks()) + anywhere(c.method.recent(c.budget));
  for (const PositionRange& pin : c.method.pins()) guarded += anywhere(static_cast<int>(pin.last - pin.first));
  return guarded;
}

// Multiplications of one eviction for comparisons of tokens, of all heads.
double comparisons(C c) {
  const Method& m = c.method;
  const auto tokens = static_cast<double>(c.tokens), budget = static_cast<double>(m.budget);
  const bool joins = merges(c) && m.join == Join::kClass;
  const double victims = std::min(std::max(0.0, tokens - budget), (m.gamma - 1) * budget);
  const HeadGeometry& geometry = c.target->shape.geometry;
  double sum = 0;
  for (int layer = 0; layer < geometry.layers(); ++layer) {
    const LayerGeometry& g = geometry.layer(layer);
    const double pairs = c.signals.pairs ? tokens * tokens / 2 * g.key_width : 0;
    const double rows = m.how().fits ? static_cast<double>(m.references) * g.group() : 0;
    sum += g.kv_heads * (pairs + (joins ? victims * budget * (g.key_width + g.value_width) : 0) +
                         rows * (tokens * (g.key_width + g.value_width) + budget * rows));
  }
  return sum;
}

// The choice that needs keys and values in host pages, all queries, or other weights than means; empty: none does.
std::string of_host_pages(C c) {
  if (c.rule.rotated_at_rank) return "rerotate delta";
  if (c.signals.sums() || c.signals.query_moments || c.signals.reduction() != WeightReduction::kMeanOverGroup)
    return "policy " + c.method.policy;
  // Devices may have the pairs of such keys in another order (CacheStorage::keeps_halves).
  const CacheType key = c.target->shape.geometry.layer_geometry(0).key_type;
  if (c.signals.original_positions && !kv_format(key).elementwise())
    return fmt::format("policy {} with keys of type {}", c.method.policy, kv_format(key).name);
  return c.method.how().changes_kept() ? fmt::format("mechanism {}", c.method.how().name) : "";
}

constexpr auto kTable = std::to_array<Requirement>({
    // Methods.
    {Scope::kMethod, "budget: policy", [](C c) { return c.method.budget != 0; }, evicts,
     [](C c) {
       return fmt::format(
           "budget {} with policy none: nothing is ever evicted; choose a policy or leave the budget out",
           option(c, "budget"));
     }},
    {Scope::kMethod, "protection: policy", [](C c) { return c.method.protection != Protection{}; }, evicts,
     [](C) -> std::string {
       return "sinks, recent or pin with policy none: nothing is ever evicted; choose a policy or leave them out";
     }},
    {Scope::kMethod, "every: policy", [](C c) { return c.method.interval != 1; }, evicts,
     [](C c) {
       return fmt::format("every {} with policy none: nothing is ever evicted; choose a policy or leave it out",
                          c.method.interval);
     }},
    {Scope::kMethod, "schedule: policy",
     [](C c) {
       const Method& m = c.method;
       return m.schedule != Schedule::kStep || m.headroom != 0 || m.max_drop != 0 || m.spare != 0 || m.overlap != 0 ||
              m.evict_after || m.split != Split::kUniform;
     },
     evicts,
     [](C) -> std::string {
       return "schedule, slack, max-drop, overlap, refresh, evict or split with policy none: nothing is ever evicted; "
              "choose a policy or leave them out";
     }},
    {Scope::kMethod, "policy: budget", evicts, [](C c) { return c.method.budget != 0; },
     [](C c) {
       return fmt::format("policy {} needs a budget: give one of at least {}", c.method.policy, legal_budget(c.method));
     }},
    {Scope::kMethod, "protection: budget", evicts,
     [](C c) { return !knows_budget(c) || c.method.budget >= min_budget(c.method); },
     [](C c) {
       const Method& m = c.method;
       const auto term = [](const char* name, int tokens) {
         return tokens == 0 ? "" : fmt::format(" + {} {}", name, tokens);
       };
       return fmt::format(
           "budget {} is below sinks {} + recent {}{}{}{}{} + 1: raise it to at least {} or protect fewer "
           "tokens",
           m.budget, m.sinks(), m.recent(), term("pinned", m.pinned()), term("slack", m.headroom),
           term("overlap", m.overlap), term("refresh", m.spare), legal_budget(m));
     }},
    {Scope::kMethod, "every: range", evicts,
     [](C c) { return !knows_budget(c) || c.method.budget + static_cast<long long>(c.method.interval) <= kMaxTokens; },
     [](C c) {
       return fmt::format("budget {} + every {} is out of range: at most {} together", c.method.budget,
                          c.method.interval, kMaxTokens);
     }},
    {Scope::kMethod, "every: schedule", [](C c) { return evicts(c) && c.method.interval != 1; },
     [](C c) { return c.method.schedule != Schedule::kPage; },
     [](C c) {
       return fmt::format("every {} with schedule page: it evicts when a page is full; leave every out",
                          c.method.interval);
     }},
    {Scope::kMethod, "prompt-max: schedule", [](C c) { return c.method.prompt_max > 0; },
     [](C c) { return evicts(c) && c.method.schedule == Schedule::kPromptStep; },
     [](C c) {
       return fmt::format(
           "prompt-max {} with schedule {}: it limits what schedule prompt+step holds of a prompt; use "
           "schedule=prompt+step, or prompt-max=0",
           c.method.prompt_max, option(c, "schedule"));
     }},
    {Scope::kMethod, "prompt-max: budget",
     [](C c) { return c.method.prompt_max > 0 && knows_budget(c) && c.method.schedule == Schedule::kPromptStep; },
     [](C c) { return c.method.prompt_max >= c.method.budget; },
     [](C c) {
       return fmt::format("prompt-max {} is below the budget {}: use at least the budget, 0 for whole prompts, or auto",
                          c.method.prompt_max, c.method.budget);
     }},
    {Scope::kMethod, "max-drop: every", [](C c) { return evicts(c) && c.method.max_drop == 1; },
     [](C c) { return c.method.interval <= 1 && c.method.schedule != Schedule::kPage; },
     [](C) -> std::string {
       return "max-drop 1: each step evicts one token and reads one, so the cache never returns to its budget; use at "
              "least 2, or every=1";
     }},
    {Scope::kMethod, "max-drop: schedule", [](C c) { return evicts(c) && c.method.max_drop != 0; },
     [](C c) { return c.method.schedule != Schedule::kPrompt; },
     [](C) -> std::string {
       return "max-drop with schedule prompt: it limits evictions after the prompt, and there are none; leave it out";
     }},
    {Scope::kMethod, "block: schedule", [](C c) { return evicts(c) && by_block(c); },
     [](C c) {
       const Method& m = c.method;
       return m.interval <= 1 && m.max_drop == 0 && m.set_aside() == 0;
     },
     [](C) -> std::string {
       return "every, slack, max-drop, overlap or refresh with mechanism block: it evicts a page at a time; leave them "
              "out";
     }},
    {Scope::kMethod, "ada: max-drop", [](C c) { return c.method.splits_at_decisions(); },
     [](C c) { return c.method.max_drop == 0; },
     [](C c) {
       return fmt::format(
           "split ada with schedule {} and max-drop: each decision compares a layer's heads, and must be carried out; "
           "leave max-drop out",
           option(c, "schedule"));
     }},
    {Scope::kMethod, "ada: one token per slot", [](C c) { return c.method.splits_at_decisions(); },
     [](C c) { return c.method.how().reuses_slots && !merges(c); },
     [](C c) {
       return fmt::format(
           "split ada with schedule {} and mechanism {}: slots that are not used again, or hold merged tokens, cannot "
           "pass from head to head; use mechanism=in-place",
           option(c, "schedule"), option(c, "mechanism"));
     }},
    {Scope::kMethod, "ada: mechanism", [](C c) { return c.method.split == Split::kAda; },
     [](C c) { return !by_block(c); },
     [](C) -> std::string {
       return "split ada with mechanism block: a head's share may be less than a page; use mechanism=in-place";
     }},
    {Scope::kMethod, "page: mechanism", [](C c) { return c.method.page != 0; },
     [](C c) { return by_block(c) || c.method.schedule == Schedule::kPage; },
     [](C c) {
       return fmt::format(
           "page {} where no pages are evicted: it is of mechanism=block and schedule=page; leave it out",
           c.method.page);
     }},
    {Scope::kMethod, "page: multiple of 8", [](C c) { return c.method.page != 0; },
     [](C c) { return c.method.page % 8 == 0; },
     [](C c) { return fmt::format("page {}: use a multiple of 8", c.method.page); }},
    {Scope::kMethod, "page score: norms", [](C c) { return c.method.page_score == PageScore::kNorms; },
     [](C c) { return by_block(c) && c.method.policy == "paged-eviction"; },
     [](C c) {
       return fmt::format(
           "page-score norms with policy {}, mechanism {}: it is the ratio of norms of mechanism=block and "
           "policy=paged-eviction; leave it out",
           c.method.policy, option(c, "mechanism"));
     }},
    {Scope::kMethod, "tau: range", always, [](C c) { return c.method.tau >= 0 && c.method.tau <= 1; },
     [](C c) { return fmt::format("tau {}: a similarity from 0 to 1", c.method.tau); }},
    {Scope::kMethod, "gamma: range", always, [](C c) { return c.method.gamma >= 1 && c.method.gamma <= kMaxGamma; },
     [](C c) {
       return fmt::format("gamma {} is out of range: use 1 to {} (1: no token is merged)", c.method.gamma, kMaxGamma);
     }},
    {Scope::kMethod, "merge: policy", merges, evicts,
     [](C) -> std::string { return "mechanism merge with policy none: nothing is ever evicted; choose a policy"; }},
    {Scope::kMethod, "own places: join",
     [](C c) { return merges(c) && c.method.merge_position == MergePosition::kOwn; },
     [](C c) { return c.method.join != Join::kNext; },
     [](C) -> std::string {
       return "merge-position own with join next: no token is merged there, only values; leave it out";
     }},
    {Scope::kMethod, "own positions: original",
     [](C c) { return merges(c) && c.method.merge_position == MergePosition::kOwn; },
     [](C c) { return c.method.positions == Positions::kOriginal; },
     [](C) -> std::string {
       return "merge-position own with cache positions: a merged token has no rank of its own there; use "
              "merge-position=representative or positions=original";
     }},
    {Scope::kMethod, "merge: rotation", merges, [](C c) { return c.method.rerotate != Rerotate::kCachedHalf; },
     [](C) -> std::string {
       return "mechanism merge with rerotate cached-half: a merged key would be stored twice; use rerotate=fused";
     }},
    {Scope::kMethod, "clusters: join", [](C c) { return merges(c) && sets_clusters(c.method); },
     [](C c) { return c.method.join == Join::kClass; },
     [](C) -> std::string {
       return "similarity, merged-key or zero-class with join next: no clusters are formed there; leave them out, or "
              "take method cam";
     }},
    {Scope::kMethod, "options: policy", [](C c) { return !foreign_option(c).empty(); }, never,
     [](C c) {
       const std::string key = foreign_option(c);
       return fmt::format("{} {} with policy {}, which has no such option: leave it out", key, option(c, key),
                          c.method.policy);
     }},
    {Scope::kMethod, "merge: range", merges,
     [](C c) { return !knows_budget(c) || static_cast<long long>(c.method.budget) * c.method.gamma <= kMaxTokens; },
     [](C c) {
       return fmt::format("budget {} x gamma {} is out of range: at most {} together", c.method.budget, c.method.gamma,
                          kMaxTokens);
     }},
    {Scope::kMethod, "no cache: baseline", [](C c) { return !c.method.cache; },
     [](C c) {
       const Method& m = c.method;
       return m.strict() && m.mechanism == Mechanism::kInPlace && m.split == Split::kUniform && m.set_aside() == 0 &&
              m.max_drop == 0 && !m.evict_after;
     },
     [](C) -> std::string {
       return "cache off is the window-recompute baseline: it takes a budget, sinks and recent, and nothing else";
     }},

    // Policies, and what methods require of them.
    {Scope::kPolicy, "scorer: policy", [](C c) { return c.method.scorer != "auto"; },
     [](C c) { return c.signals.model; },
     [](C c) {
       return fmt::format(
           "scorer {} with policy {}: it has none; leave it out or take policy learned, kvzap, temporal or "
           "triattention",
           c.method.scorer, c.method.policy);
     }},
    {Scope::kPolicy, "look ahead: positions",
     [](C c) { return c.signals.query_moments || c.signals.original_positions; },
     [](C c) { return c.method.positions == Positions::kOriginal; },
     [](C c) {
       return fmt::format("policy {} looks ahead to positions in the text: use positions=original", c.method.policy);
     }},
    {Scope::kPolicy, "query moments: keys", [](C c) { return c.signals.query_moments.has_value(); }, reads_cache,
     [](C c) {
       return fmt::format("policy {} asks for queries, and for no keys to compare them with", c.method.policy);
     }},
    {Scope::kPolicy, "repeat: whole prompts", [](C c) { return c.signals.repeat; },
     [](C c) { return c.method.prompt_max <= 0; },
     [](C c) {
       return fmt::format(
           "policy {} scores a prompt after it was read, so nothing can be evicted before: use prompt-max=0",
           c.method.policy);
     }},
    {Scope::kPolicy, "repeat: schedule", [](C c) { return c.signals.repeat; }, waits_for_prompt,
     [](C c) {
       return fmt::format(
           "policy {} scores a prompt by its repetition, after it was read: use schedule=prompt or prompt+step",
           c.method.policy);
     }},
    {Scope::kPolicy, "repeat: weights", [](C c) { return c.signals.repeat; },
     [](C c) { return weights_as_they_come(c) && !c.signals.rows() && !c.signals.query_moments; },
     [](C c) {
       return fmt::format(
           "policy {} has the prompt repeated: then it can ask for all its weights (attention_sum or attention_max), "
           "and "
           "for nothing else",
           c.method.policy);
     }},
    {Scope::kPolicy, "maximum of all queries", [](C c) { return c.signals.attention_max.has_value(); },
     [](C c) { return !c.signals.attention_window && !c.signals.attention_sum; },
     [](C c) {
       return fmt::format("policy {} asks for the largest weight of all queries: ask for no window or sum beside it",
                          c.method.policy);
     }},
    {Scope::kPolicy, "ada: scores of each head", [](C c) { return c.method.split == Split::kAda; },
     [](C c) { return !c.signals.positions_only(); },
     [](C c) {
       return fmt::format(
           "split ada with policy {}: its scores are equal for all heads; use split=uniform, or a policy that looks at "
           "attention, "
           "keys or values",
           c.method.policy);
     }},
    {Scope::kPolicy, "score on insert: rows", [](C c) { return c.signals.score_on_insert; },
     [](C c) { return c.signals.rows() && !c.signals.weights() && !c.signals.query_moments && !c.signals.ordered; },
     [](C c) {
       return fmt::format(
           "policy {} scores tokens on insert: then it can ask for their keys and values, and for nothing else",
           c.method.policy);
     }},
    {Scope::kPolicy, "insert score: attention window", [](C c) { return c.signals.insert_score.has_value(); },
     [](C c) {
       return c.signals.attention_window && !c.signals.rows() && !c.signals.query_moments &&
              !c.signals.score_on_insert && !c.signals.repeat && !merges(c);
     },
     [](C c) {
       return fmt::format(
           "policy {} keeps a score of new tokens: then it can ask for an attention window and for a sum of attention, "
           "and for nothing else, and mechanism merge is unsupported",
           c.method.policy);
     }},
    {Scope::kPolicy, "rows: window", reads_cache, [](C c) { return !weights_as_they_come(c); },
     [](C c) {
       return fmt::format(
           "policy {} asks for all weights as they come, and for keys or values: ask for an attention_window",
           c.method.policy);
     }},
    {Scope::kPolicy, "ordered: decision", [](C c) { return c.signals.ordered; },
     [](C c) { return c.signals.at_decision(); },
     [](C c) {
       return fmt::format("policy {} asks for an order, and for neither a window of attention, keys nor values",
                          c.method.policy);
     }},
    {Scope::kPolicy, "window: length", [](C c) { return c.signals.attention_window.has_value(); },
     [](C c) { return c.signals.attention_window->queries > 0; },
     [](C c) {
       return fmt::format("policy {} asks for a window of {} queries: ask for at least 1", c.method.policy,
                          c.signals.attention_window->queries);
     }},
    {Scope::kPolicy, "sums, merge: mean weights", [](C c) { return c.signals.sums() || merges(c); },
     [](C c) { return c.signals.reduction() == WeightReduction::kMeanOverGroup; },
     [](C c) {
       return fmt::format("policy {} asks for the largest weights of a group: sums and mechanism merge are of means",
                          c.method.policy);
     }},
    {Scope::kPolicy, "sums: each head",
     [](C c) { return c.signals.sums() || (c.signals.attention_window && c.signals.attention_window->past); },
     [](C c) { return !c.signals.whole_layer(); },
     [](C c) {
       return fmt::format(
           "policy {} asks for a sum or a past window of attention: those are of each head, not of a layer",
           c.method.policy);
     }},
    {Scope::kPolicy, "join next: sums", [](C c) { return merges(c) && c.method.join == Join::kNext; },
     [](C c) { return c.signals.sums(); },
     [](C c) {
       return fmt::format("join next with policy {}: it needs one that sums attention: use oldest or global-local",
                          c.method.policy);
     }},
    {Scope::kPolicy, "merge: attention window", merges,
     [](C c) { return c.signals.attention_window && !c.signals.rows() && !c.signals.whole_layer(); },
     [](C c) {
       return fmt::format(
           "mechanism merge needs a policy with an attention window and no other signals, not {}: use global-local or "
           "snapkv",
           c.method.policy);
     }},
    {Scope::kPolicy, "whole layer: split", [](C c) { return c.signals.whole_layer(); },
     [](C c) { return c.method.split == Split::kUniform; },
     [](C c) {
       return fmt::format("policy {} decides for all heads of a layer at once: use split=uniform", c.method.policy);
     }},

    // Models, devices, caches.
    {Scope::kTarget, "chunk: range", always, [](C c) { return c.target->chunk >= 1; },
     [](C c) { return fmt::format("chunk {}: give at least 1 token", c.target->chunk); }},
    {Scope::kTarget, "pin=prompt: known prompt", [](C c) { return c.method.protection.prompt; }, never,
     [](C) -> std::string {
       return "pin=prompt is for run, chat and requests to a server, where the prompt is known: pin positions here, as "
              "in pin=0-99";
     }},
    {Scope::kTarget, "cache positions: not learned",
     [](C c) { return c.method.positions != Positions::kOriginal && c.method.cache && c.method.evicts(); },
     [](C c) { return c.target->positions != PositionKind::kLearned; },
     [](C) -> std::string {
       return "this model has learned positions, which cannot be renumbered without reading the text again: use "
              "positions=original, or --method window-recompute";
     }},
    {Scope::kTarget, "second query: scores by distance", [](C c) { return c.rule.two_query; },
     [](C c) { return !c.target->scores_by_position; },
     [](C) -> std::string {
       return "this model norms queries and keys after their rotation, so that sinks cannot be scored at another "
              "position than their window: use positions=original";
     }},
    {Scope::kTarget, "look ahead: scores by distance",
     [](C c) { return c.signals.query_moments || c.signals.original_positions; },
     [](C c) { return !c.target->scores_by_position; },
     [](C c) {
       return fmt::format(
           "policy {} rotates queries to later positions, which this model's norms after the rotation do not allow: "
           "choose another policy",
           c.method.policy);
     }},
    {Scope::kTarget, "page: cache pages", [](C c) { return c.method.page != 0 && by_block(c); },
     [](C c) { return c.target->shape.page_size % c.method.page == 0; },
     [](C c) {
       return fmt::format("page {} does not divide the cache's pages of {} slots: use --page-size {}, or another page",
                          c.method.page, c.target->shape.page_size, std::lcm(c.method.page, kTile));
     }},
    {Scope::kTarget, "keys rotated again: exact type",
     [](C c) { return c.rule.rotation == Rotation::kMaterialized || c.method.rerotate == Rerotate::kDelta; },
     [](C c) { return kv_format(c.target->shape.geometry.layer_geometry(0).key_type).elementwise(); },
     [](C c) {
       return fmt::format("keys of cache type {} with rerotate {}: they would be rounded once more; use rerotate=fused",
                          kv_format(c.target->shape.geometry.layer_geometry(0).key_type).name, option(c, "rerotate"));
     }},
    {Scope::kTarget, "rotated halves: exact type",
     [](C c) { return c.rule.rotation == Rotation::kOnRead && c.method.rerotate == Rerotate::kCachedHalf; },
     [](C c) { return kv_format(c.target->shape.geometry.layer_geometry(0).key_type).elementwise(); },
     [](C c) {
       return fmt::format("cache type {} has no rotated halves beside its keys: use rerotate=fused",
                          kv_format(c.target->shape.geometry.layer_geometry(0).key_type).name);
     }},
    {Scope::kTarget, "device: cache type", [](C c) { return !c.target->shape.pages; },
     [](C c) {
       const LayerGeometry& g = c.target->shape.geometry.layer_geometry(0);
       return is_of_devices(g.key_type) && is_of_devices(g.value_type);
     },
     [](C c) {
       const LayerGeometry& g = c.target->shape.geometry.layer_geometry(0);
       const bool keys = !is_of_devices(g.key_type);
       return fmt::format(
           "{} of cache type {} work on the CPU's fast path only: use --cache-type-{} q8_0, or leave out "
           "--portable, --device and --rpc",
           keys ? "keys" : "values", kv_format(keys ? g.key_type : g.value_type).name, keys ? 'k' : 'v');
     }},
    {Scope::kTarget, "host pages", [](C c) { return !of_host_pages(c).empty(); },
     [](C c) { return c.target->shape.pages; },
     [](C c) {
       return fmt::format(
           "{} works on the pages of the CPU's fast path: choose another on other devices and with --portable",
           of_host_pages(c));
     }},
    {Scope::kTarget, "rows: one rotation", reads_cache, [](C c) { return !c.rule.rotated_at_rank; },
     [](C c) {
       return fmt::format(
           "rerotate delta with policy {}: it compares keys, which delta keeps at other rotations; use rerotate=fused",
           c.method.policy);
     }},
    {Scope::kTarget, "split: file beside the model",
     [](C c) { return c.method.evicts() && c.method.split.is_beside_model(); },
     [](C c) { return !c.target->file_of(c.method.split).empty(); },
     [](C c) {
       return fmt::format(
           "split {0} needs a file beside the model (model.{0} beside model.gguf): make one with `palimpsest fit -m "
           "MODEL` (`--quick`: model.profile in seconds), or give split=FILE",
           c.method.split.text());
     }},
    {Scope::kShared, "shared steps: a cache", always, [](C c) { return c.method.cache; },
     [](C c) {
       return fmt::format("method {} has no cache and cannot share steps with other sequences", c.method.name);
     }},
    {Scope::kTarget, "shared pages: one size", [](C c) { return c.target->shares_pages; },
     [](C c) { return c.rule.rotation != Rotation::kOnRead || c.method.rerotate != Rerotate::kCachedHalf; },
     [](C) -> std::string {
       return "rerotate=cached-half needs pages of another size than the other requests': use rerotate=fused";
     }},

    // Heads.
    {Scope::kHead, "budget: head", evicts,
     [](C c) {
       const Method& m = c.method;
       return static_cast<long long>(m.sinks()) + m.recent(c.budget) + m.pinned() + m.set_aside() < c.budget;
     },
     [](C c) {
       return fmt::format(
           "a head's budget of {} tokens is not above sinks {} + recent {}{}: raise it or protect fewer tokens",
           c.budget, c.method.sinks(), c.method.recent(c.budget),
           c.method.pinned() == 0 ? "" : fmt::format(" + pinned {}", c.method.pinned()));
     }},
    {Scope::kHead, "block: a page that may be evicted", [](C c) { return evicts(c) && by_block(c); },
     [](C c) { return full_pages(c) > guarded_pages(c); },
     [](C c) {
       return fmt::format(
           "budget {} with mechanism block holds {} full pages of {}, and sinks {} + recent {}{} may be in {} of them: "
           "raise it to at least {}, protect fewer tokens or take smaller pages",
           c.budget, full_pages(c), page_of(c), c.method.sinks(), c.method.recent(c.budget),
           c.method.pinned() == 0 ? "" : fmt::format(" + pinned {}", c.method.pinned()), guarded_pages(c),
           (static_cast<long long>(guarded_pages(c)) + 1) * page_of(c));
     }},

    // Requests.
    {Scope::kRequest, "comparisons: shared steps", [](C c) { return c.target->shares_steps && comparisons(c) > 0; },
     [](C c) { return comparisons(c) <= kMaxComparisons; },
     [](C c) {
       return fmt::format(
           "{} compares up to {} tokens of each head with each other in one eviction, and all other requests would "
           "wait "
           "for it: choose a smaller budget, schedule=step or a shorter prompt",
           c.signals.pairs ? "policy " + c.method.policy : "mechanism " + option(c, "mechanism"), c.tokens);
     }},
});

}  // namespace

std::span<const Requirement> general_requirements() {
  return kTable;
}

}  // namespace palimpsest
