// What `recall` requires.
#include <array>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {
namespace {

using C = const Candidate&;

bool recalls(C c) {
  return c.method.recall > 0;
}

bool fits_widths(C c) {
  const HeadGeometry& geometry = c.target->shape.geometry;
  const int group = kv_format(c.method.recall_type).group;
  for (int i = 0; i < geometry.layers(); ++i)
    if (geometry.layer(i).key_width % group != 0 || geometry.layer(i).value_width % group != 0) return false;
  return true;
}

constexpr auto kRecall = std::to_array<Requirement>({
    {Scope::kMethod, "recall: policy", recalls, [](C c) { return c.method.evicts(); },
     [](C c) -> std::string {
       return fmt::format("recall {} with a method that evicts nothing: choose a policy and a budget, or leave it out",
                          c.method.recall);
     }},
    {Scope::kMethod, "recall: heads", recalls, [](C c) { return c.method.recall_heads > 0; },
     [](C) -> std::string { return "recall-heads=0: no head recalls; give a part of the heads, or recall=0"; }},
    {Scope::kTarget, "recall: shares of heads", [](C c) { return c.method.recall > 0 && c.method.recall_heads < 1; },
     [](C c) { return !c.target->profile_file.empty(); },
     [](C c) {
       return fmt::format(
           "recall-heads={} needs shares of heads beside the model (model.profile): make them with `palimpsest fit "
           "--quick -m MODEL`, or leave it out",
           c.method.recall_heads);
     }},
    {Scope::kMethod, "recall: positions", recalls, [](C c) { return c.method.positions == Positions::kOriginal; },
     [](C c) {
       return fmt::format(
           "recall with positions={}: recalled keys keep their positions in the text; use "
           "positions=original",
           get_option(c.method, "positions"));
     }},
    {Scope::kMethod, "recall: mechanism", recalls, [](C c) { return !c.method.how().changes_kept(); },
     [](C c) {
       return fmt::format(
           "recall with mechanism={}: it changes the kept tokens by those that go; use "
           "mechanism=in-place",
           get_option(c.method, "mechanism"));
     }},
    {Scope::kTarget, "recall: device", recalls, [](C c) { return c.target->shape.pages; },
     [](C) -> std::string { return "recall is for the CPU: leave it out, or --portable, --device and --rpc"; }},
    {Scope::kTarget, "recall: own caches", recalls, [](C c) { return !c.target->shares_layers; },
     [](C) -> std::string {
       return "recall with a model whose layers share their caches is unsupported: leave it out";
     }},
    {Scope::kTarget, "recall: positions of the model", recalls,
     [](C c) { return c.target->positions != PositionKind::kAlibi; },
     [](C) -> std::string { return "recall with a model that biases scores by distance (ALiBi) is unsupported"; }},
    {Scope::kTarget, "recall: type", recalls, fits_widths,
     [](C c) {
       return fmt::format("recall-type={} needs heads whose widths are multiples of {}: use recall-type=f16",
                          get_option(c.method, "recall-type"), kv_format(c.method.recall_type).group);
     }},
    {Scope::kShared, "recall: one sequence", recalls, [](C) { return false; },
     [](C) -> std::string {
       return "recall is for one sequence (run, chat, eval): batches and the server have no second tier yet; leave it "
              "out";
     }},
    {Scope::kTarget, "recall: drafts", recalls, [](C c) { return c.target->draft_max == 0; },
     [](C) -> std::string { return "recall with drafts is unsupported: leave one of them out"; }},
});

}  // namespace

std::span<const Requirement> recall_requirements() {
  return kRecall;
}

}  // namespace palimpsest
