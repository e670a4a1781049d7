#include "palimpsest/engine/occupancy.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

struct OfHead {
  Occupancy writing, reading;
};

// `budget`: the head's; `least`: the smallest of all heads'.
OfHead of_head(const SessionOptions& options, PositionKind kind, long long prompt, long long tokens, int budget,
               int least) {
  const Method& m = options.method;
  const auto at_most = [&](long long count) { return tokens < 0 ? count : std::min(count, tokens); };
  const long long come = std::clamp<long long>(prompt, 1, options.chunk);
  if (!m.bounded() || (m.schedule == Schedule::kPrompt && tokens >= 0)) {
    assert(tokens >= prompt);
    const long long repeated = Evictor(m).needs().repeat ? options.chunk : 0;  // at a time
    return {.writing = {.tokens = tokens, .leave = 0},
            .reading = {.tokens = prompt + repeated, .come = come, .leave = repeated}};
  }
  if (!m.cache) {
    const long long window = at_most(budget);
    return {.writing = {.tokens = window, .come = window, .leave = window},
            .reading = {.tokens = window, .come = window, .leave = window}};
  }
  const long long more = m.schedule == Schedule::kPage ? options.page_size : m.every - 1LL, full = budget + more;
  const bool by_page = m.schedule == Schedule::kPage || m.mechanism == Mechanism::kBlock;
  const long long leave = by_page ? options.page_size : m.every + m.slack;
  OfHead out{.writing = {.tokens = at_most(full), .leave = leave}, .reading = {}};
  if (m.schedule == Schedule::kPromptStep || m.schedule == Schedule::kPrompt) {  // the prompt stays whole
    const long long repeated = Evictor(m).needs().repeat ? options.chunk : 0;
    out.reading = {.tokens = std::max(prompt + repeated, out.writing.tokens), .come = come, .leave = prompt};
    return out;
  }
  if (m.windowed() && attention_rule(m, kind).window == 0) {  // chunks that fit every head, see Sequence::make_room
    out.reading = {.tokens = at_most(full),
                   .come = std::clamp<long long>(prompt, 1, std::min<long long>(options.chunk, least + more)),
                   .leave = leave};
    return out;
  }
  // Chunk i comes on top of budget - 1 tokens, or of the i chunks before it.
  const long long chunk = options.chunk, whole = prompt / chunk, kept = budget - 1LL;
  const long long last = std::min(whole * chunk, kept) + prompt % chunk;
  const long long before = whole == 0 ? 0 : std::min((whole - 1) * chunk, kept) + chunk;
  out.reading = {.tokens = std::max({last, before, out.writing.tokens}), .come = come, .leave = come};
  return out;
}

// Append: every page but the newest holds a token, so there may be as many pages as tokens; the sinks' pages and a
// window's are known.
long long most_slots(const Method& m, int page_size, long long live, long long ever) {
  const long long sinks = m.sinks();
  const long long most =
      m.windowed() ? (sinks + page_size - 1) / page_size * page_size + live - sinks + page_size - 1 : live * page_size;
  return ever < 0 ? most : std::min(ever, most);
}

}  // namespace

Occupancies occupancies(const SessionOptions& options, PositionKind kind, long long prompt, long long tokens,
                        std::span<const int> budgets) {
  const int one = options.method.budget;
  const std::span<const int> all = budgets.empty() ? std::span(&one, 1) : budgets;
  Occupancies out;
  for (const int budget : all) {
    const bool later = options.method.splits_at_prompt_end() && options.method.bounded();
    OfHead head = later ? of_head(options, kind, prompt, tokens, one, one)
                        : of_head(options, kind, prompt, tokens, budget, std::ranges::min(all));
    if (options.method.mechanism == Mechanism::kMerge && options.method.join == Join::kClass)
      head.writing.merged = head.reading.merged = (options.method.gamma - 1LL) * budget;
    if (options.method.mechanism == Mechanism::kAppend && options.method.bounded()) {
      head.writing.slots = most_slots(options.method, options.page_size, head.writing.tokens, tokens);
      head.reading.slots =
          std::max(head.writing.slots, most_slots(options.method, options.page_size, head.reading.tokens, prompt));
    }
    // Heads have the budget on the average, and a page each that is not full; steps of a pyramid are rounded down.
    if (later) {
      const long long steeper = options.method.split == "pyramid" ? static_cast<long long>(all.size()) / 2 : 0;
      head.writing.slots = head.writing.tokens + steeper + options.page_size - 1;
      head.reading.slots = std::max(head.reading.tokens, head.writing.slots);
    }
    out.writing.push_back(head.writing);
    out.reading.push_back(head.reading);
  }
  return out;
}

}  // namespace palimpsest
