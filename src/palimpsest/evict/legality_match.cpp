// What mechanism match (MechanismTraits::fits) requires.
#include <array>

#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

constexpr int kMinInterval = 16;  // a fit costs more than a step of a small model

bool fits(C c) {
  return c.method.how().fits;
}

constexpr auto kMatch = std::to_array<Requirement>({
    {Scope::kMethod, "match: policy", fits, [](C c) { return c.method.policy != "none"; },
     [](C) -> std::string { return "mechanism match with policy none: nothing is ever evicted; choose a policy"; }},
    {Scope::kMethod, "match: interval", fits,
     [](C c) {
       const Method& m = c.method;
       return m.max_drop == 0 &&
              (m.schedule == Schedule::kPrompt || m.schedule == Schedule::kPage || m.interval >= kMinInterval);
     },
     [](C c) {
       return fmt::format(
           "mechanism match with every={}{}: each eviction fits all kept tokens, which is too much for every token; "
           "use "
           "every={} or more without max-drop, schedule=page or schedule=prompt",
           c.method.interval, c.method.max_drop == 0 ? "" : " and max-drop", kMinInterval);
     }},
    {Scope::kMethod, "match: positions", fits, [](C c) { return c.method.positions == Positions::kOriginal; },
     [](C) -> std::string {
       return "mechanism match with cache positions: an eviction moves the keys that were fitted; use "
              "positions=original";
     }},
    {Scope::kTarget, "match: own caches", fits, [](C c) { return !c.target->shares_layers; },
     [](C) -> std::string {
       return "mechanism match in a model whose layers share their caches: one value cannot fit several layers; use "
              "mechanism=in-place";
     }},
});

}  // namespace

std::span<const Requirement> match_requirements() {
  return kMatch;
}

}  // namespace palimpsest
