// Budgets by layer (pyramid) and by scores (ada), from their papers: the oracle of budget/pyramid.cpp and ada.cpp.
#include <algorithm>
#include <cmath>

#include "tests/exactness/truth.h"

namespace palimpsest::testing {

// Budgets until the end of the prompt; permanent if the end of the prompt does not change them.
std::vector<int> Truth::first_budgets() const {
  if (method_.split == Split::kPyramid) return of_pyramid(-1);
  if (method_.split == Split::kAda)
    return std::vector<int>(static_cast<std::size_t>(hyper_.geometry.heads()), method_.budget);
  return options_.budgets;
}

void Truth::budgets_at_prompt_end() {
  if (next_ <= method_.budget) {
    std::ranges::fill(budgets_, method_.budget);
  } else if (method_.split == Split::kPyramid) {
    budgets_ = of_pyramid(next_);
  } else {
    for (int layer = 0; layer < hyper_.layers; ++layer) share_by_scores(layer, 0);
  }
}

// Whether a head of the layer has too many tokens. Then all heads are compared.
bool Truth::share_now(int layer, int coming, Phase phase) {
  const auto first = static_cast<std::size_t>(hyper_.geometry.first_head(layer));
  const auto heads = static_cast<std::size_t>(hyper_.geometry.layer(layer).kv_heads);
  bool due = false;
  for (std::size_t h = 0; h < heads; ++h) due = due || surplus(first + h, coming, phase) > 0;
  if (!due) return false;
  for (std::size_t h = 0; h < heads; ++h)
    if (signals_.at_decision()) score(first + h);
  const bool makes_room = !method_.evict_after && method_.schedule != Schedule::kPage;
  share_by_scores(layer, method_.headroom + (makes_room ? coming : 0));
  return true;
}

// PyramidKV (arXiv 2406.02069): an arithmetic sequence from the first layer to the last. Its mean is the budget less
// the protected tokens; its last term is a twentieth of the mean. No layer has more than `tokens` (-1: unknown).
std::vector<int> Truth::of_pyramid(long long tokens) const {
  const int guarded = method_.sinks() + method_.recent() + method_.pinned(), mean = method_.budget - guarded;
  int last = mean / 20, first = 2 * mean - last;
  const bool flat = hyper_.layers == 1 || (tokens >= 0 && tokens < std::max<long long>(method_.budget, 2 * mean));
  if (tokens >= 0 && first > tokens - guarded) {
    first = static_cast<int>(tokens) - guarded;
    last = 2 * mean - first;
  }
  std::vector<int> budgets;
  for (int layer = 0; layer < hyper_.layers; ++layer)
    for (int head = 0; head < hyper_.geometry.layer(layer).kv_heads; ++head)
      budgets.push_back(flat ? method_.budget : guarded + first - layer * ((first - last) / (hyper_.layers - 1)));
  return budgets;
}

// AdaKV (arXiv 2407.11550) for the heads of one layer: a head gets a fifth of the mean, and a share of the rest in
// proportion to its number of tokens among the highest scores of all heads. Rounding: largest fractions first.
//
// Without waiting for a prompt (splits_at_decisions), each decision shares what the layer keeps then; `added`: the
// tokens that come, and the slack, which each head's budget has on top of what it keeps.
void Truth::share_by_scores(int layer, int added) {
  struct Entry {
    float score;
    std::size_t head;
  };
  const auto first = static_cast<std::size_t>(hyper_.geometry.first_head(layer));
  const auto heads = static_cast<std::size_t>(hyper_.geometry.layer(layer).kv_heads);
  if (heads == 0) return;
  if (!method_.splits_at_decisions() &&
      tables_[first].kept.size() <= static_cast<std::size_t>(method_.budget)) {  // an attention window
    std::fill_n(budgets_.begin() + static_cast<std::ptrdiff_t>(first), heads, method_.budget);
    return;
  }
  std::vector<Entry> all;
  std::vector<int> may(heads, 0), protects(heads, 0);
  for (std::size_t h = 0; h < heads; ++h)
    for (const Token& token : tables_[first + h].kept) {
      const bool free = may_leave(token, first + h);
      ++(free ? may : protects)[h];
      if (free) all.push_back({token.score, h});
    }
  std::ranges::stable_sort(all, [](const Entry& a, const Entry& b) { return a.score > b.score; });
  int total = static_cast<int>(heads) * (method_.budget - added);
  for (const int count : protects) total -= count;

  total = std::clamp(total, 0, static_cast<int>(all.size()));  // fewer are there, after edits
  const int mean = total / static_cast<int>(heads), fifth = static_cast<int>(0.2 * mean);
  const int safe = std::min(mean, std::max(fifth, method_.headroom + method_.overlap + method_.spare + 1));
  std::vector<double> share(heads, safe);
  for (int i = 0; i < total; ++i)
    share[all[static_cast<std::size_t>(i)].head] += (total - safe * static_cast<double>(heads)) / total;
  std::vector<int> count(heads);
  int left = total;
  for (std::size_t h = 0; h < heads; ++h) left -= count[h] = std::min(may[h], static_cast<int>(share[h] + 1e-9));
  std::vector<std::size_t> order(heads);
  for (std::size_t h = 0; h < heads; ++h) order[h] = h;
  std::ranges::stable_sort(order, std::greater(),
                           [&](std::size_t h) { return std::round((share[h] - count[h]) * 1e9); });
  for (std::size_t i = 0; left > 0; i = (i + 1) % heads)
    if (count[order[i]] < may[order[i]]) ++count[order[i]], --left;
  for (std::size_t h = 0; h < heads; ++h) budgets_[first + h] = protects[h] + count[h] + added;

  const auto end = static_cast<std::size_t>(total);
  if (total == 0 || end >= all.size() || !same(all[end].score, all[end - 1].score)) return;
  for (std::size_t h = 0; h < heads; ++h) tables_[first + h].close_budget = true;
  if (verdict_.first_close < 0) verdict_.first_close = next_;
}

}  // namespace palimpsest::testing
