// The invariants of a slot table, for loading and for tests.
//
//   counts      every column has an entry a slot; a page counts its tokens; the last page is mapped
//   positions   0 <= base <= next, and next - base fits 32 bits, as relative positions and the guards of a selection
//               do. base is 0 until the first rebase(), at 2^30 if the text is never edited. A token's position is
//               below next and unique.
//   ordinals    of an edited text: likewise, below read
//   ranks       the rank of a token is the number of tokens at smaller positions, or its position
//   slots       with shift and gather: the first ones hold the tokens, in the order read
//   inserted    the tokens that were read last, in that order, or none
//   free        each empty slot of mapped pages once; with append not those of dropped tokens. Empty with shift and
//               gather.
//   block       at most one page is partly full; tokens fill it first, then page after page: so whole pages can be
//               dropped
//   scores      scores and statistics of tokens are finite: selection compares them
#include <algorithm>
#include <cmath>
#include <vector>

#include "palimpsest/cache/slots.h"

namespace palimpsest {
namespace {

constexpr Position kMaxPosition = Position{1} << 60;

}  // namespace

const char* SlotTable::fault() const {
  // Each check relies on the ones before it.
  for (const auto check :
       {&SlotTable::counts_fault, &SlotTable::positions_fault, &SlotTable::tokens_fault, &SlotTable::free_fault})
    if (const char* const found = (this->*check)()) return found;
  return nullptr;
}

const char* SlotTable::counts_fault() const {
  const std::size_t slots = relative_.size();
  if (slots % at(page_size_) != 0 || score_.size() != slots ||
      std::ranges::any_of(column_, [&](const auto& column) { return column.size() != slots; }) ||
      rank_.size() != (track_rank_ ? slots : 0) || ordinal_.size() != (edited_ ? slots : 0) ||
      page_occupied_.size() != slots / at(page_size_))
    return "columns of different lengths";
  int occupied = 0, mapped = 0, empty = 0;
  for (int page = 0; page < pages(); ++page) {
    const auto of_page = std::span(relative_).subspan(at(page * page_size_), at(page_size_));
    const auto tokens = static_cast<int>(page_size_ - std::ranges::count(of_page, kEmptySlot));
    if (this->mapped(page) ? page_occupied_[at(page)] != tokens : tokens != 0)
      return "a page that counts its tokens wrongly";
    occupied += tokens;
    mapped += this->mapped(page) ? 1 : 0;
    empty += this->mapped(page) && tokens == 0 ? 1 : 0;
  }
  if (occupied != occupied_ || mapped != mapped_pages_ || empty != empty_pages_) return "counts that do not add up";
  if (pages() > 0 && !this->mapped(pages() - 1)) return "an unmapped page at the end";
  return nullptr;
}

const char* SlotTable::positions_fault() const {
  if (base_ < 0 || base_ > next_ || next_ > kMaxPosition) return "positions out of order";
  if ((base_ != 0 && base_ < kRebaseAt && !edited_) || next_ - base_ > INT32_MAX)
    return "positions too far from their base";
  int previous = -1;
  for (const SaturatedToken& token : saturated_) {
    if (token.slot <= previous || token.slot >= slots() || relative_[at(token.slot)] != kSaturated ||
        relative_position(token.position) != kSaturated)
      return "a relative position of another token";
    previous = token.slot;
  }
  if (std::ranges::count(relative_, kSaturated) != std::ssize(saturated_))
    return "a relative position of another token";
  for (int slot = 0; slot < slots(); ++slot) {
    if (relative_[at(slot)] < kSaturated) return "a relative position of another token";
    const Position p = position(slot);
    if (p != kNoPosition && (p < 0 || p >= next_)) return "a token after the last";
    if (track_rank_ && (rank_[at(slot)] == -1) != (p == kNoPosition)) return "a rank without a token";
  }
  return nullptr;
}

const char* SlotTable::tokens_fault() const {
  if (tokens_read() < 0 || tokens_read() > kMaxPosition) return "an impossible count of tokens";
  std::vector<int> order;
  for (int slot = 0; slot < slots(); ++slot)
    if (relative_[at(slot)] != kEmptySlot) order.push_back(slot);
  if (compacts() && !order.empty() && order.back() != occupied_ - 1) return "a hole between tokens";
  std::ranges::sort(order, {}, [&](int slot) { return position(slot); });
  for (int i = 0; i < occupied_; ++i) {
    const int slot = order[at(i)];
    if (i > 0 && position(slot) == position(order[at(i - 1)])) return "a token in two slots";
    if (track_rank_ && rank_[at(slot)] != (rank_is_position_ ? position(slot) : i))
      return "ranks out of the order of positions";
    const auto finite = [&](const std::vector<float>& column) { return std::isfinite(column[at(slot)]); };
    if (!finite(score_) || !std::ranges::all_of(column_, finite)) return "a score that is not a number";
  }
  if (edited_) std::ranges::sort(order, {}, [&](int slot) { return ordinal(slot); });
  for (int i = 0; i < occupied_; ++i) {
    const int slot = order[at(i)];
    if (ordinal(slot) < 0 || ordinal(slot) >= tokens_read() || (i > 0 && ordinal(slot) == ordinal(order[at(i - 1)])))
      return "tokens that were not read one after another";
    if (compacts() && slot != i) return "slots out of the order of age";
  }
  for (std::size_t i = 0; i < inserted_.size(); ++i) {
    const int slot = inserted_[i];
    if (slot < 0 || slot >= slots() || relative_[at(slot)] == kEmptySlot ||
        ordinal(slot) != tokens_read() - static_cast<Position>(inserted_.size() - i))
      return "new slots that are not the newest tokens'";
  }
  return nullptr;
}

const char* SlotTable::free_fault() const {
  const int empty = mapped_pages_ * page_size_ - occupied_;
  if (compacts() ? free_.size() != 0 : traits_.reuses_slots ? free_.size() != empty : free_.size() > empty)
    return "free slots that do not add up";
  std::vector<bool> seen(at(slots()));
  for (int i = 0; i < free_.size(); ++i) {
    const int slot = free_[i];
    if (slot < 0 || slot >= slots() || !mapped(slot / page_size_) || relative_[at(slot)] != kEmptySlot)
      return "a free slot that is none";
    if (seen[at(slot)]) return "a free slot twice";
    seen[at(slot)] = true;
  }
  if (!traits_.whole_pages) return nullptr;
  int left = 0;  // free slots in the page being filled
  for (int i = 0; i < free_.size(); ++i) {
    const int page = free_[i] / evicted_page_;
    if (left > 0 ? page != free_[i - 1] / evicted_page_ : i > 0 && occupied_in_evicted(page) != 0)
      return "two pages that are partly full";
    left = (left > 0 ? left : evicted_page_ - occupied_in_evicted(page)) - 1;
  }
  return nullptr;
}

}  // namespace palimpsest
