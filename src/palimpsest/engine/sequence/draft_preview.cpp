#include "palimpsest/engine/sequence/draft_preview.h"

#include <algorithm>
#include <cassert>

namespace palimpsest {
namespace {

// Drafts that can each drop one token of any page, and leave none without tokens.
int max_without_empty_page(const SlotTable& table) {
  int min = INT32_MAX;
  for (int page = 0; page < table.pages(); ++page)
    if (table.mapped(page)) min = std::min(min, table.occupied_in_page(page));
  return std::max(0, min - 1);
}

}  // namespace

DraftPreview::DraftPreview(const MethodPlan& plan, Cache& cache, const Evictor& evictor)
    : plan_(plan), cache_(cache), evictor_(evictor) {}

int DraftPreview::begin(int drafts) {
  patches_.resize(at(cache_.tables()));
  scratch_.resize(std::max<std::size_t>(1, at(cache_.geometry().max_kv_heads())));
  Scratch& scratch = scratch_.front();
  for (int t = 0; t < cache_.tables(); ++t) {
    patches_[at(t)].clear();
    // The victims are not known yet, but they change no page.
    if (in_layer(t)) drafts = std::min(drafts, max_without_empty_page(cache_.table(t)));
    scratch.table = cache_.table(t);
    for (int query = 1; query <= drafts; ++query)
      if (!advance(scratch, t, query)) drafts = query - 1;
    if (in_layer(t)) patches_[at(t)].clear();
  }
  for (auto& patches : patches_) std::erase_if(patches, [&](const SlotPatch& patch) { return patch.query > drafts; });
  if (drafts > 0) cache_.preview(patches_);
  return drafts;
}

std::span<const SlotPatch> DraftPreview::next(const StepSignal& reported, int query) {
  const int t = cache_.table_of(reported.head);
  assert(in_layer(t) && !cache_.options().shared);
  Scratch& scratch = scratch_[at(cache_.geometry().kv_head_of(reported.head))];
  if (query == 1) scratch.table = cache_.table(t), patches_[at(t)].clear();
  if (reported.kind == StepSignal::Kind::kWeights)
    evictor_.score_by_weights(*scratch.table, t, reported.rows);
  else
    evictor_.score_inserted(*scratch.table, t, reported.rows, reported.values);
  [[maybe_unused]] const bool possible = advance(scratch, t, query);
  assert(possible);
  return patches_[at(t)];
}

bool DraftPreview::holds(int query) const {
  for (int t = 0; t < cache_.tables(); ++t) {
    const SlotPatch wanted{.query = query, .slot = cache_.table(t).inserted().front(), .token = true};
    if (std::ranges::find(patches_[at(t)], wanted) == patches_[at(t)].end()) return false;
  }
  return true;
}

// Changes the copy of table `t` as Evictions::decide() and commit(1) would. false: that moves tokens or changes pages.
bool DraftPreview::advance(Scratch& scratch, int t, int query) {
  SlotTable& table = *scratch.table;
  auto &outside = scratch.outside, &victims = scratch.victims;
  std::vector<SlotPatch>& patches = patches_[at(t)];
  const int slots = table.slots(), mapped = table.mapped_pages();
  const auto change = [&](std::span<const int> drop, int insert) {
    for (const int slot : drop) patches.push_back({.query = query, .slot = slot, .token = false});
    const SlotChange change{.drop = drop, .insert = insert};
    table.reserve(change, scratch.moves);
    table.apply(change, scratch.moves);
    return scratch.moves.empty() && table.slots() == slots && table.mapped_pages() == mapped;
  };
  evictor_.outside_of(table, t, outside);
  evictor_.victims_of(table, t, static_cast<int>(outside.size()), victims);
  const bool apart =
      !plan_.method().how().reuses_slots || plan_.method().evict_after || (!outside.empty() && !victims.empty());
  if (apart) {
    if (!outside.empty() && !change(outside, 0)) return false;
    evictor_.victims_of(table, t, 0, victims);
    if (!victims.empty() && !change(victims, 0)) return false;
    outside.clear(), victims.clear();
  }
  if (!change(outside.empty() ? victims : outside, 1)) return false;
  patches.push_back({.query = query, .slot = table.inserted()[0], .token = true});
  return true;
}

}  // namespace palimpsest
