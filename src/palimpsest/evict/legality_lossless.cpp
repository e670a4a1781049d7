// What `lossless` requires.
#include <array>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

bool only_drafts(C c) {
  return c.method.lossless;
}

bool forgets_positions(C c) {
  const HeadGeometry& geometry = c.target->shape.geometry;
  for (int i = 0; i < geometry.layers(); ++i)
    if (geometry.layer(i).kv_heads > 0 && geometry.layer(i).window != INT32_MAX) return true;
  return false;
}

constexpr auto kLossless = std::to_array<Requirement>({
    {Scope::kMethod, "lossless: policy", only_drafts, [](C c) { return c.method.evicts() && c.method.cache; },
     [](C) -> std::string {
       return "lossless=true needs a method with a cache that evicts: choose a policy and a budget, or leave it out";
     }},
    {Scope::kMethod, "lossless: positions", only_drafts, [](C c) { return c.method.positions == Positions::kOriginal; },
     [](C c) {
       return fmt::format(
           "lossless=true with positions={}: both caches hold the same keys, rotated by position in the text; use "
           "positions=original",
           get_option(c.method, "positions"));
     }},
    {Scope::kMethod, "lossless: mechanism", only_drafts, [](C c) { return !c.method.how().changes_kept(); },
     [](C c) {
       return fmt::format(
           "lossless=true with mechanism={}: it changes kept tokens and cannot forget rejected drafts; use "
           "mechanism=in-place",
           get_option(c.method, "mechanism"));
     }},
    {Scope::kShared, "lossless: one sequence", only_drafts, [](C) { return false; },
     [](C) -> std::string {
       return "lossless=true is for one sequence (run, chat): batches and the server have no full cache beside the "
              "method's; leave it out";
     }},
    {Scope::kTarget, "lossless: two caches", only_drafts, [](C c) { return c.target->beside_full; },
     [](C) -> std::string {
       return "lossless=true is for run and chat, which hold a full cache beside the method's: leave it out here";
     }},
    {Scope::kTarget, "lossless: device", only_drafts, [](C c) { return c.target->shape.pages; },
     [](C) -> std::string { return "lossless=true is for the CPU: leave it out, or --portable, --device and --rpc"; }},
    {Scope::kTarget, "lossless: windows", only_drafts, [](C c) { return !forgets_positions(c); },
     [](C) -> std::string {
       return "lossless=true with a model whose layers have an attention window is unsupported: they drop tokens that "
              "are needed again after rejected drafts; leave it out";
     }},
    {Scope::kTarget, "lossless: state", only_drafts, [](C c) { return c.target->shape.state_floats == 0; },
     [](C) -> std::string {
       return "lossless=true with a model whose layers have a recurrent state is unsupported: a state cannot forget "
              "rejected drafts; leave it out";
     }},
    {Scope::kTarget, "lossless: whole steps", only_drafts, [](C c) { return !c.target->layerwise; },
     [](C) -> std::string {
       return "lossless=true with --prefill-layerwise: the full cache holds the whole prompt anyway; leave one of them "
              "out";
     }},
});

}  // namespace

std::span<const Requirement> lossless_requirements() {
  return kLossless;
}

}  // namespace palimpsest
