// The slot tables of layers with an attention window. The query at position p sees the positions p - window + 1 to p,
// so no later query sees a token before next_ - window + 1.
#include <algorithm>

#include "tests/exactness/truth.h"

namespace palimpsest::testing {

// Two methods keep tokens outside a window that is wider than the budget: sinks + window with an eviction at every
// token (only sinks are there), and mechanism block (it evicts full pages only).
std::vector<std::int32_t> Truth::first_windows() const {
  const HeadGeometry& geometry = hyper_.geometry;
  if (!options_.windows || geometry.windowed_layers() == 0) return {};
  const bool as_without = method_.mechanism == Mechanism::kBlock || method_.strict();
  std::vector<std::int32_t> windows;
  for (int head = 0; head < geometry.heads(); ++head) {
    const std::int32_t window = geometry.layer_geometry(head).window;
    const bool held = policy_ == nullptr || window <= budget(static_cast<std::size_t>(head));
    windows.push_back(held || !as_without ? window : INT32_MAX);
  }
  return windows;
}

// The budget holds the whole window: no policy evicts from this table.
bool Truth::holds_window(std::size_t table) const {
  if (windows_.empty() || windows_[table] == INT32_MAX) return false;
  return policy_ == nullptr || windows_[table] <= budget(table);
}

void Truth::drop_unseen(int coming, Phase phase) {
  for (std::size_t t = 0; t < windows_.size(); ++t) {
    if (windows_[t] == INT32_MAX) continue;
    Table& table = tables_[t];
    // Sinks + window keeps its sinks, unless the budget is fixed and holds the whole window.
    const bool keeps_sinks = method_.windowed() && (method_.budgets_change() || !holds_window(t));
    const Position first = keeps_sinks ? method_.sinks() : 0, end = next_ - windows_[t] + 1;
    const auto is_unseen = [&](const Token& token) { return stored_at(token) >= first && stored_at(token) < end; };
    switch (method_.mechanism) {
      case Mechanism::kShift:
      case Mechanism::kGather: {
        const bool decides =
            surplus(t, coming, phase) > 0 || (phase == Phase::kPromptEnd && method_.splits_at_prompt_end());
        if (!decides && std::ranges::count_if(table.kept, is_unseen) < options_.page_size) continue;
        std::erase_if(table.kept, is_unseen);
        break;
      }
      case Mechanism::kBlock: {
        const auto is_left = [&](const Token& token) {
          const auto in_page = [&](const Token& other) { return other.page == token.page; };
          return std::ranges::count_if(table.kept, in_page) < page() ||
                 std::ranges::any_of(table.kept,
                                     [&](const Token& other) { return in_page(other) && !is_unseen(other); });
        };
        std::vector<Token> left;
        std::ranges::copy_if(table.kept, std::back_inserter(left), is_left);
        table.kept = std::move(left);
        break;
      }
      default:
        std::erase_if(table.kept, is_unseen);
    }
  }
}

// The first position that a query of this step sees. Whether older tokens are in the table does not change a result.
Position Truth::seen_from(std::size_t table) const {
  return windows_.empty() || windows_[table] == INT32_MAX ? 0 : next_ - count_ - windows_[table] + 1;
}

}  // namespace palimpsest::testing
