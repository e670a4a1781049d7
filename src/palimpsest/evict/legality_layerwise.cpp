// What a prompt that is read layer by layer (PlanTarget::layerwise) requires.
#include <array>

#include "palimpsest/evict/legality.h"
#include "palimpsest/evict/plan_target.h"

namespace palimpsest {
namespace {

bool by_layer(const Candidate& c) {
  return c.target->layerwise;
}

constexpr auto kLayerwise = std::to_array<Requirement>({
    {Scope::kTarget, "layerwise: schedule", by_layer,
     [](const Candidate& c) {
       const Schedule schedule = c.method.schedule;
       return c.method.evicts() && (schedule == Schedule::kPrompt || schedule == Schedule::kPromptStep);
     },
     [](const Candidate& c) {
       return fmt::format(
           "--prefill-layerwise with schedule {}: it compresses each layer's cache at the end of the prompt; use "
           "schedule=prompt or prompt+step, or leave it out",
           get_option(c.method, "schedule"));
     }},
    {Scope::kTarget, "layerwise: whole prompts", by_layer, [](const Candidate& c) { return c.method.prompt_max <= 0; },
     [](const Candidate& c) {
       return fmt::format(
           "--prefill-layerwise with prompt-max {}: it reads whole prompts; use prompt-max=0, or leave it out",
           get_option(c.method, "prompt-max"));
     }},
    {Scope::kTarget, "layerwise: one reading", by_layer, [](const Candidate& c) { return !c.signals.repeat; },
     [](const Candidate& c) {
       return fmt::format(
           "--prefill-layerwise with policy {}, for which all layers read the prompt a second time: leave it out",
           c.method.policy);
     }},
    {Scope::kTarget, "layerwise: host pages", by_layer, [](const Candidate& c) { return c.target->shape.pages; },
     [](const Candidate&) -> std::string {
       return "--prefill-layerwise works on the CPU's fast path only: leave out --portable, --device and --rpc, or "
              "leave it out";
     }},
    {Scope::kTarget, "layerwise: windows of layers", by_layer,
     [](const Candidate& c) { return c.target->shape.geometry.windowed_layers() == 0; },
     [](const Candidate&) -> std::string {
       return "--prefill-layerwise in a model whose layers have an attention window: leave it out";
     }},
    {Scope::kTarget, "layerwise: recurrent layers", by_layer,
     [](const Candidate& c) { return c.target->shape.state_floats == 0; },
     [](const Candidate&) -> std::string {
       return "--prefill-layerwise in a model with recurrent layers: leave it out";
     }},
    {Scope::kTarget, "layerwise: one stream", by_layer,
     [](const Candidate& c) { return !c.target->shares_layers && !c.target->several_streams; },
     [](const Candidate&) -> std::string {
       return "--prefill-layerwise in a model whose layers share caches, have several streams of hidden states or read "
              "embeddings of their own: leave it out";
     }},
    {Scope::kTarget, "layerwise: own steps", by_layer,
     [](const Candidate& c) { return !c.target->shares_steps && !c.target->shares_pages; },
     [](const Candidate&) -> std::string {
       return "--prefill-layerwise with concurrent requests, which share steps and prefixes: leave it out";
     }},
});

}  // namespace

std::span<const Requirement> layerwise_requirements() {
  return kLayerwise;
}

}  // namespace palimpsest
