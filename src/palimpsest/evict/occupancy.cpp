// MethodPlan::occupancies: upper bounds of the tokens in each head.
#include <algorithm>
#include <cassert>

#include "palimpsest/core/growth.h"
#include "palimpsest/evict/method_plan.h"

namespace palimpsest {
namespace {

struct OfHead {
  Occupancy decode, prefill;
};

// The max number of tokens of a head while a prompt is read in chunks: evictions before and after a chunk leave `kept`
// tokens as soon as there are `full`; before a chunk one less, if they make room for a token (`makes_room`).
//
//   0       chunk    2 chunk  ..  >= full      kept or kept - 1, + chunk, + chunk  ..  >= full
//
// So evictions leave at most two different numbers, and after four of them nothing is new.
long long max_while_reading(long long prompt, long long chunk, long long kept, long long full, bool makes_room) {
  long long max = 0, occupied = 0, left = prompt;
  for (int evictions = 0; evictions < 4 && left > 0; ++evictions) {
    const long long chunks = std::max<long long>(1, (full - occupied + chunk - 1) / chunk);
    const long long read = std::min(left, chunks * chunk);
    left -= read;
    occupied += read;
    max = std::max(max, occupied);
    occupied = makes_room && (occupied == full || kept == full) ? kept - 1 : kept;
  }
  return max;
}

// `budget`: the head's; `min`: the smallest of all heads.
OfHead of_head(const MethodPlan& plan, long long prompt, long long tokens, int budget, int min) {
  const Method& m = plan.method();
  const long long page_size = m.page_of(plan.cache().page_size), chunk = plan.chunk();
  const auto at_most = [&](long long count) { return tokens < 0 ? count : std::min(count, tokens); };
  const long long inserted = std::clamp<long long>(prompt, 1, chunk);
  if (!m.bounded()) {
    assert(tokens >= prompt);
    const long long repeated = plan.signals().repeat ? chunk : 0;
    // The prompt's end evicts down to the budget; generated tokens are never evicted. (Append: in other slots.)
    const bool cuts = m.evicts() && m.how().reuses_slots;
    const long long kept = cuts ? std::min(prompt, m.target(budget) + m.interval - 1LL) : prompt;
    return {
        .decode = {.tokens = kept + tokens - prompt, .evicted = m.evicts() ? 1 : 0},
        .prefill = {.tokens = prompt + repeated, .inserted = inserted, .evicted = m.evicts() ? prompt + repeated : 0}};
  }
  if (!m.cache) {
    const long long window = at_most(budget);
    return {.decode = {.tokens = window, .inserted = window, .evicted = window},
            .prefill = {.tokens = window, .inserted = window, .evicted = window}};
  }
  const bool waits_for_page = m.schedule == Schedule::kPage;
  const long long full = waits_for_page ? m.target(budget) + page_size : m.max_tokens(budget);
  const bool by_page = waits_for_page || m.how().whole_pages;
  const long long evicted = by_page ? page_size : m.interval;
  OfHead out{.decode = {.tokens = at_most(full), .evicted = evicted}, .prefill = {}};
  if (m.schedule == Schedule::kPromptStep || m.schedule == Schedule::kPrompt) {  // no eviction inside the prompt
    const long long repeated = plan.signals().repeat ? chunk : 0;
    const long long held =
        m.prompt_max == 0 ? prompt : std::min(prompt, m.max_while_reading(budget) + std::max(chunk, inserted));
    // Where heads' budgets change, one may have to give up all.
    const bool known = m.prompt_max > 0 && !m.budgets_change();
    out.prefill = {.tokens = std::max(held + repeated, out.decode.tokens),
                   .inserted = inserted,
                   .evicted = known ? std::max(evicted, held - m.target(budget) + 1) : held};
    return out;
  }
  if (m.windowed() && !plan.rule().has_window()) {  // chunks that fit every head, see Sequence::make_room
    out.prefill = {.tokens = at_most(full),
                   .inserted = std::clamp<long long>(prompt, 1, std::min<long long>(chunk, full - budget + min)),
                   .evicted = evicted};
    return out;
  }
  const long long kept = m.target(budget);
  const long long max = max_while_reading(prompt, chunk, kept, full, !waits_for_page && !m.evict_after);
  out.prefill = {.tokens = std::max(max, out.decode.tokens),
                 .inserted = inserted,
                 .evicted = std::max({inserted, max - kept + 1, evicted})};
  return out;
}

// The occupancy of a head that keeps its whole window. Mechanisms that move tokens, or drop whole pages, wait until a
// page of tokens is outside.
OfHead of_window(const MethodPlan& plan, long long prompt, long long tokens, const TableWindow& window) {
  const MechanismTraits& how = plan.method().how();
  const bool waits = how.waits_for_page();
  const long long memory_page = plan.cache().page_size, chunk = plan.chunk();
  const long long page_size = how.whole_pages ? plan.method().page_of(plan.cache().page_size) : memory_page;
  const long long inserted = std::clamp<long long>(prompt, 1, chunk);
  const long long kept = window.size - 1LL + window.sinks + (waits ? page_size - 1 : 0);
  const long long repeated = plan.signals().repeat ? chunk : 0, evicted = waits ? page_size : 1;
  OfHead out{.decode = {.tokens = tokens < 0 ? kept + 1 : std::min(kept + 1, tokens), .evicted = evicted},
             .prefill = {}};
  const long long max = max_while_reading(prompt, chunk, kept + 1, kept + 1, true);
  out.prefill = {.tokens = std::max(max, out.decode.tokens) + repeated,
                 .inserted = inserted,
                 .evicted = std::max(inserted + repeated, evicted)};
  if (!how.reuses_slots) {  // the window may begin and end inside a page
    out.decode.slots = out.decode.tokens + page_size - 1;
    out.prefill.slots = out.prefill.tokens + page_size - 1;
  }
  return out;
}

// The smaller of two upper bounds.
void bound(Occupancy& o, const Occupancy& by) {
  if (by.tokens >= o.tokens) return;
  o.evicted = std::max(o.evicted, by.evicted);
  o.tokens = by.tokens;
  o.inserted = std::min(o.inserted, std::max(1LL, by.inserted));
}

// A later prompt's chunk comes to a cache that decode left, which holds up to `decode`.
void add_chunk(OfHead& head, long long prompt, int page_size) {
  const long long chunk = head.prefill.inserted;
  const long long tokens = std::min(prompt, head.decode.tokens + chunk);
  if (head.prefill.evicted > 0) head.prefill.evicted += chunk;
  head.prefill.tokens = std::max(head.prefill.tokens, tokens);
  if (head.decode.slots > 0 || head.prefill.slots > 0)
    head.prefill.slots = std::max(head.prefill.slots, head.decode.slots + chunk + page_size);
}

// Append: a page is freed only when it is empty, so in the worst case each token has its own page. With sinks + window
// the pages are known.
long long max_slots(const Method& m, int page_size, long long occupied, long long ever) {
  const long long sinks = m.sinks();
  const long long max = m.windowed()
                            ? (sinks + page_size - 1) / page_size * page_size + occupied - sinks + page_size - 1
                            : occupied * page_size;
  return ever < 0 ? max : std::min(ever, max);
}

// No more tokens are merged than were read, whatever gamma is.
long long merged_tokens(int gamma, int budget, long long tokens) {
  const long long max = (gamma - 1LL) * budget;
  return tokens < 0 ? max : std::min(max, static_cast<long long>(capacity_for(static_cast<std::size_t>(tokens))));
}

}  // namespace

Occupancies MethodPlan::occupancies(long long prompt, long long tokens, bool continued) const {
  const Method& m = method_;
  const int page_size = cache_.page_size;
  const std::span<const int> all = budgets_.empty() ? std::span(&m.budget, 1) : std::span(budgets_);
  Occupancies out;
  for (std::size_t i = 0; i < std::max(all.size(), windows_.size()); ++i) {
    const int budget = all.size() == 1 ? all.front() : all[i];
    const TableWindow window = windows_.empty() ? TableWindow{} : windows_[i];
    const bool budgets_change = m.budgets_change() && m.evicts();
    if (window.always_held_by(budget)) {
      OfHead head = of_window(*this, prompt, tokens, window);
      if (continued) add_chunk(head, prompt, cache_.page_size);
      out.decode.push_back(head.decode);
      out.prefill.push_back(head.prefill);
      continue;
    }
    OfHead head = budgets_change ? of_head(*this, prompt, tokens, m.budget, m.budget)
                                 : of_head(*this, prompt, tokens, budget, std::ranges::min(all));
    if (window.size != INT32_MAX) {
      const OfHead whole = of_window(*this, prompt, tokens, window);
      if (!budgets_change) bound(head.decode, whole.decode);
      bound(head.prefill, whole.prefill);
      head.prefill.tokens = std::max(head.prefill.tokens, head.decode.tokens);
    } else if (!windows_.empty()) {  // the prompt's end defragments, which copies all tables
      head.prefill.evicted = std::max(head.prefill.evicted, 1LL);
    }
    if (m.joins_classes()) {
      head.decode.merged = head.prefill.merged = merged_tokens(m.gamma, budget, tokens);
    }
    if (!m.how().reuses_slots && m.bounded()) {
      head.decode.slots = max_slots(m, page_size, head.decode.tokens, tokens);
      head.prefill.slots = std::max(head.decode.slots, max_slots(m, page_size, head.prefill.tokens, prompt));
    }
    // Heads have the budget on average and one page each that is not full; the steps of a pyramid are rounded down.
    // With a decision at each step, all that a layer evicts may be one head's, whose pages return before the next
    // decision (Evictions::compact), while the others begin new ones.
    if (budgets_change) {
      const long long steeper = m.split == Split::kPyramid ? static_cast<long long>(all.size()) / 2 : 0;
      const auto holes = [&](const Occupancy& o) { return m.splits_at_decisions() ? o.evicted + page_size : 0; };
      head.decode.slots = head.decode.tokens + steeper + page_size - 1 + holes(head.decode);
      head.prefill.slots = std::max(head.prefill.tokens + holes(head.prefill), head.decode.slots);
    }
    if (continued) add_chunk(head, prompt, cache_.page_size);
    out.decode.push_back(head.decode);
    out.prefill.push_back(head.prefill);
  }
  if (target_.layerwise) leave_prompt_to_one_layer(out);
  return out;
}

// A prompt is in the layer where it adds most; the others hold what they keep of it, or what they held before.
void MethodPlan::leave_prompt_to_one_layer(Occupancies& all) const {
  const HeadGeometry& geometry = cache_.geometry;
  assert(!cache_.shared);
  const auto decode_of = [&](int head) -> const Occupancy& {
    return all.decode[all.decode.size() == 1 ? 0 : at(head)];
  };
  if (all.prefill.size() == 1) all.prefill.assign(at(geometry.heads()), all.prefill.front());
  int widest = 0;
  long long most = -1;
  for (int layer = 0; layer < geometry.layers(); ++layer) {
    long long added = 0;
    for (int head = geometry.first_head(layer); head < geometry.first_head(layer + 1); ++head)
      added += all.prefill[at(head)].tokens - decode_of(head).tokens;
    if (added > most) most = added, widest = layer;
  }
  // The first layers of a pyramid hold more than the mean, which decode counts for each, and the last ones less.
  const bool pyramid = method_.split == Split::kPyramid && method_.splits_at_prompt_end();
  for (int head = 0; head < geometry.heads(); ++head) {
    Occupancy& prefill = all.prefill[at(head)];
    if (geometry.layer_of(head) != widest)
      prefill = decode_of(head);
    else if (pyramid)
      prefill.slots = std::max(prefill.tokens, prefill.slots) + decode_of(head).tokens;
  }
}

}  // namespace palimpsest
