// What steps with drafts (PlanTarget::draft_max) require.
#include <array>

#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

bool drafts(C c) {
  return c.target->draft_max > 0;
}
bool drops_each(C c) {
  return victims_follow_from_text(c.method, c.signals);
}
// Whether a step of drafts can read more than one token: no eviction is due after each token, or its victim is known.
bool room_for_drafts(C c) {
  const Method& m = c.method;
  return !m.evicts() || m.schedule == Schedule::kPrompt || m.schedule == Schedule::kPage || m.interval > 1 ||
         m.how().whole_pages || drops_each(c);
}
bool observes_decode(C c) {
  return c.method.evicts() && c.method.schedule != Schedule::kPrompt && !c.signals.positions_only();
}
bool has_windows(C c) {
  const HeadGeometry& geometry = c.target->shape.geometry;
  for (int layer = 0; layer < geometry.layers(); ++layer)
    if (geometry.layer(layer).kv_heads > 0 && geometry.layer(layer).window != INT32_MAX) return true;
  return false;
}

constexpr auto kDrafts = std::to_array<Requirement>({
    {Scope::kTarget, "drafts: a cache", drafts, [](C c) { return c.method.cache; },
     [](C c) { return fmt::format("method {} has no cache: leave drafts out", c.method.name); }},
    {Scope::kTarget, "drafts: own caches", drafts, [](C c) { return !c.target->shares_layers; },
     [](C) -> std::string {
       return "drafts with a model whose layers share their caches are unsupported: leave them out";
     }},
    {Scope::kTarget, "drafts: device", [](C c) { return drafts(c) && !c.target->shape.pages; },
     [](C c) { return !has_windows(c) && !observes_decode(c) && c.target->shape.state_floats == 0; },
     [](C c) {
       return fmt::format(
           "drafts with {} on devices: supported where no policy observes them (full, schedule=prompt, a policy by "
           "position; no attention windows, no recurrent layers); leave out drafts, or --portable, --device and --rpc",
           c.method.name);
     }},
    {Scope::kTarget, "drafts: query group", drafts,
     [](C c) { return max_draft_tokens(c.target->shape.geometry.max_group()) > 1; },
     [](C c) {
       return fmt::format("drafts with {} query heads for one KV head: at most {}; leave drafts out",
                          c.target->shape.geometry.max_group(), kDraftRows / 2);
     }},
    {Scope::kTarget, "drafts: interval", drafts, room_for_drafts,
     [](C c) {
       return fmt::format(
           "drafts with policy {} at every=1: each token evicts another, which its own weights or keys decide; use "
           "every={} or more, or schedule=prompt",
           c.method.policy, c.target->draft_max + 1);
     }},
    {Scope::kTarget, "drafts: mechanism",
     [](C c) { return drafts(c) && (drops_each(c) || (c.method.how().changes_kept() && has_windows(c))); },
     [](C c) { return !c.method.how().moves_rows && !c.method.how().changes_kept(); },
     [](C c) {
       return fmt::format("drafts with mechanism={} where each token may drop others: use mechanism=in-place",
                          get_option(c.method, "mechanism"));
     }},
    {Scope::kTarget, "drafts: ranks", [](C c) { return drafts(c) && (drops_each(c) || has_windows(c)); },
     [](C c) {
       return !unrotated_keys(c.rule.rotation) && ((!c.rule.rank_distance && !c.rule.two_query) || c.rule.has_window());
     },
     [](C c) -> std::string {
       if (has_windows(c))
         return "drafts with positions=cache, of a model whose layers have attention windows: there each token drops "
                "the oldest, which changes the rotation of all keys, whatever every= is; use positions=original";
       return fmt::format(
           "drafts with rerotate {} where each token drops another: that changes the rotation of all keys; use "
           "every={} or more, positions=original, or rerotate=auto with sinks + window and schedule=step",
           get_option(c.method, "rerotate"), c.target->draft_max + 1);
     }},
});

}  // namespace

std::span<const Requirement> draft_requirements() {
  return kDrafts;
}

}  // namespace palimpsest
