// What `positions` and `rerotate` require.
#include <array>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/legality.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

constexpr auto kPositionRows = std::to_array<Requirement>({
    {Scope::kMethod, "rerotate: positions", [](C c) { return c.method.rerotate != Rerotate::kAuto; },
     [](C c) { return c.method.positions != Positions::kOriginal; },
     [](C c) {
       return fmt::format(
           "rerotate {} with original positions: keys are never rotated again; use positions=cache or rerotate=auto",
           get_option(c.method, "rerotate"));
     }},
    {Scope::kMethod, "auto positions: rotated on read", [](C c) { return c.method.positions == Positions::kAuto; },
     [](C c) {
       return c.method.cache && !c.method.windowed() && c.method.rerotate != Rerotate::kTwoQuery &&
              c.method.rerotate != Rerotate::kDelta;
     },
     [](C c) {
       return fmt::format(
           "positions auto with {}: it needs keys that are rotated when they are read; use positions=cache or original",
           c.method.windowed() ? "sinks + window"
           : !c.method.cache   ? "cache=off"
                               : "rerotate " + get_option(c.method, "rerotate"));
     }},
    {Scope::kMethod, "two-query: window", [](C c) { return c.method.rerotate == Rerotate::kTwoQuery; },
     [](C c) { return c.method.windowed(); },
     [](C c) {
       return fmt::format(
           "rerotate two-query with policy {}{}{}{}: it holds for sinks + window (policy recent) only; use fused",
           c.method.policy, c.method.spare == 0 ? "" : " and refresh",
           c.method.how().whole_pages ? " and mechanism block" : "",
           c.method.pins().empty() ? "" : " and pinned tokens");
     }},
    {Scope::kMethod, "delta: moves", [](C c) { return c.method.rerotate == Rerotate::kDelta; },
     [](C c) { return c.method.how().moves_rows; },
     [](C c) {
       return fmt::format(
           "rerotate delta with mechanism {}: no key moves there; use mechanism=shift, or rerotate=fused",
           get_option(c.method, "mechanism"));
     }},
});

}  // namespace

std::span<const Requirement> position_requirements() {
  return kPositionRows;
}

}  // namespace palimpsest
