#include "palimpsest/evict/method.h"

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

constexpr int kMost = 1 << 30;  // of any count of tokens

void validate_unbounded(const Method& m) {
  if (m.budget != 0)
    fail("budget {} with policy none: nothing would ever leave; choose a policy or leave the budget out", m.budget);
  if (m.protection != Protection{})
    fail("sinks or recent with policy none: nothing ever leaves; choose a policy or leave them out");
  if (m.every != 1) fail("every {} with policy none: nothing ever leaves; choose a policy or leave it out", m.every);
  if (m.schedule != Schedule::kStep || m.slack != 0 || m.max_drop != 0 || m.refresh != 0 || m.split != "uniform")
    fail(
        "schedule, slack, max-drop, refresh or split with policy none: nothing ever leaves; choose a policy or leave "
        "them out");
}

void validate_bounded(const Method& m) {
  const int sinks = m.sinks(), recent = m.recent();
  const long long least = static_cast<long long>(sinks) + recent + m.slack + m.refresh + 1;
  if (m.budget == 0) fail("policy {} needs a budget: give one of at least {}", m.policy, least);
  if (m.budget < least)
    fail("budget {} is below sinks {} + recent {}{}{} + 1: raise it to at least {} or protect fewer tokens", m.budget,
         sinks, recent, m.slack == 0 ? "" : fmt::format(" + slack {}", m.slack),
         m.refresh == 0 ? "" : fmt::format(" + refresh {}", m.refresh), least);
  if (m.budget + static_cast<long long>(m.every) > kMost)
    fail("budget {} + every {} is out of range: at most {} together", m.budget, m.every, kMost);
  if (m.schedule == Schedule::kPage && m.every != 1)
    fail("every {} with schedule page: a full page is what it waits for; leave every out", m.every);
  if (m.mechanism == Mechanism::kBlock && (m.every != 1 || m.slack != 0 || m.max_drop != 0 || m.refresh != 0))
    fail("every, slack, max-drop or refresh with mechanism block: a page leaves at a time; leave them out");
  if (m.split != "ada") return;
  if (m.schedule != Schedule::kPrompt && m.schedule != Schedule::kPromptStep)
    fail(
        "split ada with schedule {}: heads share their budgets by scores when the prompt was read; use schedule=prompt "
        "or prompt+step",
        get_option(m, "schedule"));
  if (m.mechanism == Mechanism::kBlock)
    fail("split ada with mechanism block: a head's share may be less than a page; use mechanism=in-place");
}

void validate_merge(const Method& m) {
  if (m.tau < 0 || m.tau > 1) fail("tau {}: a similarity from 0 to 1", m.tau);
  if (m.mechanism != Mechanism::kMerge) return;
  if (m.policy == "none") fail("mechanism merge with policy none: nothing ever leaves; choose a policy");
  if (m.join == Join::kNext && m.places == Places::kOwn)
    fail("places own with join next: no token is merged there, only values; leave places out");
  if (m.positions != Positions::kOriginal)
    fail(
        "mechanism merge with cache positions: merged tokens share their slot's place in the text; use "
        "positions=original");
  if (static_cast<long long>(m.budget) * m.gamma > kMost)
    fail("budget {} x gamma {} is out of range: at most {} together", m.budget, m.gamma, kMost);
}

void validate_rerotate(const Method& m) {
  if (m.rerotate == Rerotate::kAuto) return;
  if (m.positions != Positions::kCache)
    fail("rerotate {} with original positions: keys are never rotated again; use positions=cache or rerotate=auto",
         get_option(m, "rerotate"));
  if (m.rerotate == Rerotate::kTwoQuery && !m.windowed())
    fail("rerotate two-query with policy {}{}{}: it holds for sinks + window (policy recent) only; use fused", m.policy,
         m.refresh == 0 ? "" : " and refresh", m.mechanism == Mechanism::kBlock ? " and mechanism block" : "");
  if (m.rerotate == Rerotate::kDelta && m.mechanism != Mechanism::kShift && m.mechanism != Mechanism::kGather)
    fail("rerotate delta with mechanism {}: nothing moves there; use mechanism=shift, or rerotate=fused",
         get_option(m, "mechanism"));
}

}  // namespace

const std::vector<MethodRow>& methods() {
  static const std::vector<MethodRow> table = {
      {"full", "-", "nothing leaves: memory grows with every token", {}},
      {"streaming",
       "arXiv 2309.17453",
       "4 sinks + the newest tokens, positions inside the cache; a budget of 256 unless you say otherwise",
       {.name = "streaming",
        .policy = "recent",
        .protection = {.sinks = 4},
        .budget = 256,
        .positions = Positions::kCache}},
      {"lazy",
       "Lazy Pruning",
       "streaming, evicting 64 tokens at once; with mechanism=shift,rerotate=delta as its paper has it",
       {.name = "lazy",
        .policy = "recent",
        .protection = {.sinks = 4},
        .budget = 256,
        .every = 64,
        .positions = Positions::kCache}},
      {"h2o",
       "arXiv 2306.14048",
       "heavy hitters, by the attention received so far, and as many of the newest; each head its own",
       {.name = "h2o", .policy = "h2o", .protection = {.recent = Protection::kHalf}, .budget = 256}},
      {"random",
       "-",
       "4 sinks, the newest 32, and of the others any: the row that a policy must beat",
       {.name = "random", .policy = "random", .protection = {.sinks = 4, .recent = 32}, .budget = 256}},
      {"tova",
       "arXiv 2401.06104",
       "what the last query looked at least leaves; all heads of a layer keep the same",
       {.name = "tova", .policy = "tova", .protection = {}, .budget = 256}},
      {"snapkv",
       "arXiv 2404.14469",
       "once, when the prompt was read: what its last 32 queries looked at stays, with neighbours; then the cache "
       "grows "
       "(schedule=step: it does not)",
       {.name = "snapkv",
        .policy = "snapkv",
        .protection = {.recent = 32},
        .budget = 256,
        .schedule = Schedule::kPrompt}},
      {"pyramidkv",
       "arXiv 2406.02069",
       "snapkv, with a budget that falls from layer to layer",
       {.name = "pyramidkv",
        .policy = "snapkv",
        .protection = {.recent = 32},
        .budget = 256,
        .split = "pyramid",
        .schedule = Schedule::kPrompt}},
      {"adakv",
       "arXiv 2407.11550",
       "snapkv, with budgets of a layer's heads by what they would have kept together",
       {.name = "adakv",
        .policy = "snapkv",
        .protection = {.recent = 32},
        .budget = 256,
        .split = "ada",
        .schedule = Schedule::kPrompt}},
      {"expected-attention",
       "arXiv 2510.00636",
       "what the next 512 queries would look at if they were like those so far, times ||v||; 4 sinks; evicts 64 at "
       "once",
       {.name = "expected-attention",
        .policy = "expected-attention",
        .protection = {.sinks = 4},
        .budget = 256,
        .every = 64}},
      {"kvzip",
       "arXiv 2505.23416",
       "once, when the prompt was read: what the model looks at while it repeats it stays; reads the prompt twice",
       {.name = "kvzip", .policy = "kvzip", .protection = {.sinks = 4}, .budget = 256, .schedule = Schedule::kPrompt}},
      {"scissorhands",
       "arXiv 2305.17118",
       "what got an even share of attention most often lately, and the newest 10; each head its own",
       {.name = "scissorhands", .policy = "scissorhands", .protection = {.recent = 10}, .budget = 256}},
      {"lagkv",
       "arXiv 2504.04704",
       "16 sinks, and what stands out from the 128 tokens that follow it; needs no attention",
       {.name = "lagkv", .policy = "lagkv", .protection = {.sinks = 16}, .budget = 256}},
      {"r-kv",
       "arXiv 2505.24133",
       "what the last 8 queries looked at and later keys do not repeat; evicts 128 tokens at once",
       {.name = "r-kv", .policy = "r-kv", .protection = {.recent = 8}, .budget = 256, .every = 128}},
      {"global-local",
       "arXiv 2412.08521",
       "EMS's score alone: what all queries or the last 32 looked at stays, with neighbours; each head its own",
       {.name = "global-local",
        .policy = "global-local",
        .protection = {.recent = 32},
        .budget = 256,
        .schedule = Schedule::kPromptStep}},
      {"ems",
       "arXiv 2412.08521",
       "global-local; what leaves is merged into the token most like it, if one is: gamma x the budget, and no more "
       "keys and values",
       {.name = "ems",
        .policy = "global-local",
        .protection = {.recent = 32},
        .budget = 256,
        .schedule = Schedule::kPromptStep,
        .mechanism = Mechanism::kMerge}},
      {"cam",
       "CaM, ICML 2024",
       "4 sinks + the newest tokens; the value of one that leaves may go, in shares, to the 32 that follow it",
       {.name = "cam",
        .policy = "oldest",
        .protection = {.sinks = 4},
        .budget = 256,
        .mechanism = Mechanism::kMerge,
        .join = Join::kNext}},
      {"paged-eviction",
       "PagedEviction",
       "whole pages leave, of the lowest mean ||v|| / ||k||; of a prompt, when it was read, the best tokens stay",
       {.name = "paged-eviction",
        .policy = "paged-eviction",
        .protection = {.recent = 1},
        .budget = 256,
        .schedule = Schedule::kPromptStep,
        .mechanism = Mechanism::kBlock}},
      {"knorm",
       "arXiv 2406.11430",
       "the keys of the lowest norm; each head its own (mechanism=append: as it is on a paged cache)",
       {.name = "knorm", .policy = "knorm", .protection = {}, .budget = 256}},
      {"keydiff",
       "arXiv 2504.15364",
       "the keys least like the mean key; each head its own; reads all keys at every eviction",
       {.name = "keydiff", .policy = "keydiff", .protection = {}, .budget = 256}},
      {"duo",
       "arXiv 2410.10819",
       "DuoAttention: heads of a list keep sinks and the newest tokens only, the others what these leave of the "
       "budget; "
       "the list lies beside the model (MODEL.duo), or split=FILE",
       {.name = "duo",
        .policy = "recent",
        .protection = {.sinks = Share::of_budget(0.1)},
        .budget = 640,
        .split = "duo"}},
      {"learned",
       "Sparse eviction",
       "what a scorer trained on this model expects to be looked at, by a token's own key and value; each head its own",
       {.name = "learned", .policy = "learned", .protection = {.sinks = 4, .recent = 32}, .budget = 256}},
      {"sparse",
       "Sparse eviction",
       "sinks + the newest tokens at their own places: nothing is renumbered (any policy: sparse:policy=h2o)",
       {.name = "sparse", .policy = "recent", .protection = {.sinks = 4}, .budget = 256}},
      {"compact-shift",
       "-",
       "baseline: survivors move up and are rotated again at every step, as llama.cpp's context shift does",
       {.name = "compact-shift",
        .policy = "recent",
        .protection = {.sinks = 4},
        .budget = 256,
        .mechanism = Mechanism::kShift,
        .positions = Positions::kCache,
        .rerotate = Rerotate::kDelta}},
      {"window-recompute",
       "-",
       "baseline: no cache; the newest tokens (and sinks, if any) are read anew for every token",
       {.name = "window-recompute",
        .policy = "recent",
        .protection = {},
        .budget = 256,
        .positions = Positions::kCache,
        .cache = false}},
  };
  return table;
}

void validate_pages(const Method& m, int budget, int page_size) {
  if (m.mechanism != Mechanism::kBlock || !m.evicts()) return;
  const auto pages = [&](int tokens) { return (tokens + page_size - 1) / page_size; };
  const int recent = m.recent(budget);
  const int kept = pages(m.sinks()) + (recent == 0 ? 0 : 1 + pages(recent - 1));
  if (budget / page_size <= kept)
    fail(
        "budget {} with mechanism block holds {} full pages of {}, and sinks {} + recent {} may be in {} of them: "
        "raise "
        "it to at least {}, protect fewer tokens or take smaller pages",
        budget, budget / page_size, page_size, m.sinks(), recent, kept, (static_cast<long long>(kept) + 1) * page_size);
}

void validate(const Method& m) {
  if (m.policy == "none")
    validate_unbounded(m);
  else
    validate_bounded(m);
  validate_merge(m);
  validate_rerotate(m);
  if (!m.cache && (!m.strict() || m.mechanism != Mechanism::kInPlace || m.split != "uniform"))
    fail("cache off is the window-recompute baseline: it takes a budget, sinks and recent, and nothing else");
}

}  // namespace palimpsest
