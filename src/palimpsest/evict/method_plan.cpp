#include "palimpsest/evict/method_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "palimpsest/budget/split.h"
#include "palimpsest/cache/recall_tier.h"
#include "palimpsest/cache/storage.h"
#include "palimpsest/cache/storage_growth.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/growth.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/policy/of_budget.h"

namespace palimpsest {
namespace {

SplitOf split_of(const Candidate& of) {
  const Method& m = of.method;
  const HeadGeometry& geometry = of.target->shape.geometry;
  std::vector<int> heads;
  for (int layer = 0; layer < geometry.layers(); ++layer) heads.push_back(geometry.layer(layer).kv_heads);
  const int recent = m.recent(0);  // 0 if it is a share of each head's budget
  const int min = m.sinks() + recent + m.pinned() + m.set_aside() + 1 + (recent == 0 ? 1 : 0);
  // Ranks of keys stay inside the trained context, also while a prompt is read.
  const int trained = m.positions != Positions::kOriginal ? of.target->trained_context : 0;
  std::function<std::uint64_t()> fingerprint;
  if (of.target->model) fingerprint = [target = of.target] { return target->model().fingerprint; };
  return {.budget = m.budget,
          .guarded = m.sinks() + m.recent() + m.pinned(),
          .heads = std::move(heads),
          .min = min,
          .max = trained == 0 ? 0 : std::max(1, trained - of.target->chunk - m.interval),
          .fingerprint = fingerprint};
}

// `of` was checked for all scopes but kHead.
std::vector<int> head_budgets(const Candidate& of) {
  const Method& m = of.method;
  if (!m.evicts()) return {};
  return split_budget(m.split.is_beside_model() ? Split(of.target->file_of(m.split)) : m.split, split_of(of));
}

// Which heads recall; empty: all.
std::vector<bool> recalling_heads(const Candidate& of) {
  const Method& m = of.method;
  if (m.recall == 0 || m.recall_heads >= 1) return {};
  SplitOf shares = split_of(of);
  shares.budget = 1 << 20, shares.guarded = 0, shares.min = 0, shares.max = 0;
  const std::vector<int> tokens = split_budget(Split(of.target->profile_file), shares);
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t head) { return tokens[head]; });
  order.resize(static_cast<std::size_t>(std::ceil(m.recall_heads * static_cast<double>(order.size()))));
  std::vector<bool> recalls(tokens.size());
  for (const std::size_t head : order) recalls[head] = true;
  return recalls;
}

CacheOptions cache_options(const Candidate& of) {
  CacheOptions cache = of.target->shape;
  cache.mechanism = of.method.mechanism;
  cache.shared = of.signals.positions_only() && !of.signals.own_heads && of.method.split == Split::kUniform &&
                 !of.target->layerwise && !of.method.how().fits;
  cache.columns =
      of.signals.columns() + (of.method.keeps_norms() || of.method.scores_by_norms() || of.method.how().fits ? 1 : 0);
  cache.evicted_page = of.method.how().whole_pages ? of.method.page : 0;
  cache.head_floats =
      static_cast<int>(of.signals.head_floats(cache.geometry.max_group(), cache.geometry.max_key_width()));
  cache.track_rank = unrotated_keys(of.rule.rotation) || of.rule.rank_distance;
  if (cache.track_rank && of.method.positions == Positions::kAuto)
    cache.original_until = std::min(of.target->trained_context, kMaxOriginal);
  cache.rotated_half = of.rule.rotation == Rotation::kOnRead && of.method.rerotate == Rerotate::kCachedHalf;
  return cache;
}

// Bytes of the pages of the layer that has most.
std::size_t widest_layer(const CacheOptions& cache, std::span<const Occupancy> of_heads) {
  std::size_t max = 0;
  for (int layer = 0; layer < cache.geometry.layers(); ++layer) {
    const int first = cache.geometry.first_head(layer), count = cache.geometry.layer(layer).kv_heads;
    if (count == 0) continue;
    CacheOptions one = cache;
    one.geometry = HeadGeometry({cache.geometry.layer(layer)});
    max = std::max(max, footprint(one, of_heads.subspan(at(first), at(count))).rows);
  }
  return max;
}

}  // namespace

// Which chunks are exact, for sinks + window (s sinks, budget B):
//
//   eviction at every token  any: a mask lets the query at p see the sinks and the last B - s tokens
//   else                     up to the next eviction: no token is evicted inside the chunk, so no mask is needed
//
// With a mask, the sinks have a second query, rotated to the rank that it would have after the evictions. Keys stored
// rotated to their rank (delta) have no such query and belong to the second row.
//
// ALiBi rotates nothing: the kernel takes ranks, and computes distances from them.
AttentionRule attention_rule(const Method& m, PositionKind kind) {
  AttentionRule rule;
  rule.rotation = kind == PositionKind::kRotary ? Rotation::kOnWrite : Rotation::kNever;
  const bool renumbers =
      m.positions != Positions::kOriginal && m.cache && (m.evicts() || m.rerotate != Rerotate::kAuto);
  if (kind == PositionKind::kAlibi && renumbers) {
    rule.rank_distance = true;
    rule.two_query = m.strict();
  } else if (kind == PositionKind::kRotary && renumbers) {
    rule.two_query = m.rerotate == Rerotate::kTwoQuery || (m.rerotate == Rerotate::kAuto && m.windowed());
    rule.rotated_at_rank = m.rerotate == Rerotate::kDelta;
    if (!rule.two_query && !rule.rotated_at_rank)
      rule.rotation = m.rerotate == Rerotate::kRecompute ? Rotation::kMaterialized : Rotation::kOnRead;
    if (m.strict() && !rule.rotated_at_rank) rule.two_query = true;
  }
  if (rule.two_query) rule.sinks = m.sinks();
  if (m.strict() && m.cache && !rule.rotated_at_rank) {
    rule.sinks = m.sinks();
    rule.window = m.max_tokens(m.budget) - m.sinks();
  }
  return rule;
}

MethodPlan::MethodPlan(const Method& method, PlanTarget target)
    : method_(resolve(method, target)), target_(std::move(target)) {
  check_legal(Scope::kMethod, {.method = method_});
  std::unique_ptr<Policy> policy = method_.evicts() ? make_policy(method_.policy, method_.of_policy) : nullptr;
  if (policy != nullptr) signals_ = policy->signals();
  if (policy != nullptr && method_.how().fits) signals_.references = ReferenceQueries{method_.references};
  check_legal(Scope::kPolicy, {.method = method_, .signals = signals_});
  rule_ = attention_rule(method_, target_.positions);
  Candidate all{.method = method_, .signals = signals_, .target = &target_, .rule = rule_};
  if (target_.shares_steps) check_shares_steps(method_);
  check_legal(Scope::kTarget, all);
  budgets_ = head_budgets(all);
  recalling_ = recalling_heads(all);
  all.page_size = target_.shape.page_size;
  for (const int budget : budgets_.empty() ? std::vector{method_.budget} : budgets_) {
    all.budget = budget;
    check_legal(Scope::kHead, all);
  }
  cache_ = cache_options(all);
  keep_windows();
  draft_max_ = std::max(0, std::min(target_.draft_max, max_draft_tokens(cache_.geometry.max_group()) - 1));
  name_head_windows();
  if (policy != nullptr) set_budgets(*policy, budgets_, method_.budget);
  if (signals_.model && target_.model) {
    policy->prepare(target_.model());
    prepared_ = true;
  }
  target_.model = nullptr;  // the model need not outlive the constructor
  policy_ = std::move(policy);
}

std::optional<float> MethodPlan::fading_on_device() const {
  const Method& m = method_;
  const bool one_at_each_step = previews_victims() && m.max_drop + m.overlap + m.spare == 0 && !m.evict_after;
  if (policy_ == nullptr || cache_.pages || cache_.shared || draft_max_ > 0 || m.budgets_change() || !one_at_each_step)
    return std::nullopt;
  return policy_->fading();
}

int MethodPlan::budget_of(int head) const {
  if (!method_.evicts()) return 0;
  return budgets_.empty() ? method_.budget : budgets_[static_cast<std::size_t>(head)];
}

// The window of the head's layer; none if tokens outside it cannot be dropped.
TableWindow MethodPlan::window_of(int head) const {
  if (!cache_.pages || !method_.cache) return {};
  return {.size = cache_.geometry.layer_geometry(head).window, .budget_changes = method_.budgets_change()};
}

void MethodPlan::keep_windows() {
  const HeadGeometry& geometry = cache_.geometry;
  const bool bounded_by_policy = method_.how().whole_pages || method_.strict();
  std::vector<std::int32_t> windows;
  for (int head = 0; head < geometry.heads(); ++head)
    windows.push_back(holds_window(head) || !bounded_by_policy ? window_of(head).size : INT32_MAX);
  if (std::ranges::all_of(windows, [](std::int32_t window) { return window == INT32_MAX; })) return;
  cache_.windows = std::move(windows);
  const std::vector<int> tables = tables_of(cache_);
  for (int head = 0; head < geometry.heads(); ++head) {
    const auto table = static_cast<std::size_t>(tables[static_cast<std::size_t>(head)]);
    windows_.resize(std::max(windows_.size(), table + 1));
    windows_[table] = window_of(head);
    windows_[table].size = cache_.windows[static_cast<std::size_t>(head)];
    if (method_.windowed() && !holds_window(head)) windows_[table].sinks = method_.sinks();
  }
}

// With a mask, or a second query for the sinks, each head's window follows from its budget. A head that keeps the
// layer's whole window has that one, because a key's rotation is its position's there. Where keys are rotated by rank
// it has none: ranks are counted from the oldest token that is left, sink or not, so one query meets all. (The kernels
// apply the layer's window as well.)
void MethodPlan::name_head_windows() {
  if (!rule_.has_window() && !rule_.two_query) return;
  const bool by_rank = unrotated_keys(rule_.rotation) || rule_.rank_distance;
  bool differ = rule_.has_window() && method_.split != Split::kUniform;
  for (int head = 0; head < cache_.geometry.heads(); ++head) {
    const bool holds = holds_window(head);
    differ = differ || holds;
    head_windows_.push_back(holds && !by_rank    ? cache_.geometry.layer_geometry(head).window
                            : holds              ? INT32_MAX
                            : rule_.has_window() ? method_.max_tokens(budget_of(head)) - rule_.sinks
                                                 : INT32_MAX);
  }
  if (differ) rule_.head_window = head_windows_;
}

Signals MethodPlan::signals(Phase phase) const {
  Signals now = signals_;
  const bool decides = phase != Phase::kDecode || method_.schedule != Schedule::kPrompt;
  if (!decides) now.query_moments.reset();
  if (!decides || phase == Phase::kRepeat) now.references.reset();  // the repetition's tokens are removed
  if (!decides || (signals_.repeat && phase != Phase::kRepeat)) {
    now.attention_sum.reset();
    now.attention_max.reset();
    now.attention_window.reset();
  }
  return now;
}

long long MethodPlan::nothing_evicted_until() const {
  if (!method_.evicts() || (method_.waits_for_prompt() && method_.prompt_max == 0)) return INT64_MAX;
  return method_.target(budgets_.empty() ? method_.budget : std::ranges::min(budgets_));
}

void MethodPlan::check_request(long long prompt, long long tokens) const {
  const Occupancies max = occupancies(prompt, tokens);
  Candidate request{.method = method_, .signals = signals_, .target = &target_, .rule = rule_};
  for (const auto* of : {&max.prefill, &max.decode})
    for (const Occupancy& head : *of) request.tokens = std::max(request.tokens, head.tokens);
  check_legal(Scope::kRequest, request);
}

PlanBytes MethodPlan::bytes(long long prompt, long long tokens, bool continued) const {
  const Occupancies max = occupancies(prompt, tokens, continued);
  PlanBytes a = bytes_of(max.prefill), b = bytes_of(max.decode);
  const bool copies = method_.how().copies_rows && method_.evicts() && cache_.pages;
  if (copies && target_.layerwise) a.pages = a.pages / 2 + widest_layer(cache_, max.prefill);
  if (copies && method_.schedule == Schedule::kPrompt) b.pages /= 2;  // decode evicts nothing
  return {.pages = std::max(a.pages, b.pages),
          .tables = std::max(a.tables, b.tables),
          .statistics = std::max(a.statistics, b.statistics),
          .state = std::max(a.state, b.state),
          .merged = std::max(a.merged, b.merged),
          .scratch = std::max(a.scratch, b.scratch),
          .hidden = hidden_bytes(prompt),
          .recall = recall_bytes(tokens)};
}

PlanBytes MethodPlan::bytes_of(std::span<const Occupancy> occupancy) const {
  const Footprint f = footprint(cache_, occupancy);
  const auto storage_bytes = [&] {  // all heads have the slots of the fullest
    long long slots = 0;
    for (const Occupancy& each : occupancy) slots = std::max({slots, each.tokens, each.slots});
    if (previews_drafts()) slots += draft_max_;  // CacheStorage::draft_slot
    slots += slots / kStorageGrowth;
    const std::size_t score = fading_on_device() ? sizeof(float) : 0;
    const auto granule = std::lcm<long long>(cache_.page_size, kStorageSlots);
    return (f.token_bytes + f.heads * score) * static_cast<std::size_t>((slots + granule - 1) / granule * granule);
  };
  const bool copies = method_.how().copies_rows && method_.evicts();  // to new pages, before the old are freed
  return {.pages = !cache_.pages ? storage_bytes()
                   : copies      ? 2 * f.rows
                                 : f.rows,
          .tables = f.columns + f.counts + f.queues + f.blocks + f.working,
          .statistics = f.head_statistics,
          .state = f.state,
          .merged = f.merged,
          .scratch = scratch_bytes(f)};
}

std::size_t MethodPlan::scratch_bytes(const Footprint& f) const {
  const std::size_t layer = f.max_layer_entries * sizeof(float);
  const int rows = std::max(1, std::min(signals_.parts(), target_.chunk)) + (signals_.sums() ? 1 : 0);
  return (signals_.weights() ? layer * at(rows) : 0) + draft_bytes(f);
}

std::size_t MethodPlan::hidden_bytes(long long prompt) const {
  return target_.layerwise ? static_cast<std::size_t>(prompt) * at(target_.width) * sizeof(float) : 0;
}

std::size_t MethodPlan::recall_bytes(long long tokens) const {
  if (method_.recall == 0) return 0;
  const long long evicted = tokens < 0 ? method_.recall_max : tokens;
  return RecallTier::max_bytes(cache_.geometry, method_.recall_type, method_.recall_max, evicted, method_.kept_choice(),
                               recalling_);
}

// What a step with drafts reports of each token, in all layers, is held until accept()
// (engine/sequence/held_signals.h). And the logits of the drafts, and the state after each.
std::size_t MethodPlan::draft_bytes(const Footprint& f) const {
  if (draft_max_ == 0) return 0;
  constexpr std::size_t kHead = 256, kQueryHead = 64;  // bytes of the arrays' bookkeeping
  const Signals held = signals(Phase::kDecode);
  const HeadGeometry& geometry = cache_.geometry;
  std::size_t floats = held.weights() ? at(geometry.layers()) * f.max_layer_entries : 0, objects = 0;
  for (int head = 0; head < geometry.heads(); ++head) {
    const LayerGeometry& g = geometry.layer_geometry(head);
    if (held.score_on_insert) floats += at(g.key_width) + at(g.value_width);
    if (held.queries()) floats += at(g.group()) * at(g.key_width);
    if (previews_drafts() && cache_.pages)
      floats += at(g.key_width) + at(g.value_width);  // engine/sequence/draft_rows.h
    objects += kHead + kQueryHead * at(g.group());
  }
  if (previews_drafts()) {  // engine/sequence/draft_preview.h
    const std::size_t tables = previews_in_layers() ? at(geometry.max_kv_heads()) : 1;
    objects += tables * (kHead + f.max_layer_entries / at(geometry.max_kv_heads()) * f.slot_bytes);
    objects += f.tables * at(draft_max_) * 4 * sizeof(SlotPatch);
  }
  floats *= at(draft_max_) + 1;
  floats += at(draft_max_) * (at(target_.vocabulary) + cache_.state_floats);
  return floats * sizeof(float) + objects;
}

}  // namespace palimpsest
