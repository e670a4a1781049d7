#include "palimpsest/evict/auto.h"

#include "palimpsest/evict/legality.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {
namespace {

// Shares of heads by `palimpsest fit`, where heads may have budgets of their own (docs/decisions/0043-auto-shares.md).
// Not on devices, where all heads have the slots of the fullest.
Split split_of(Method m, const PlanTarget& target) {
  if (target.profile_file.empty() || !target.shape.pages || !m.evicts()) return Split::kUniform;
  m.split = Split::kProfile;
  const Candidate with_shares{.method = m, .signals = make_policy(m.policy, m.of_policy)->signals()};
  return is_legal(Scope::kMethod, with_shares) && is_legal(Scope::kPolicy, with_shares) ? m.split : Split::kUniform;
}

}  // namespace

MethodRow auto_row() {
  return {"auto",
          "-",
          "keeps all tokens while memory and the trained context allow; then 4 sinks, the newest quarter, and of the "
          "older tokens those whose keys differ from the mean key (keydiff), with the heads' shares of MODEL.profile, "
          "which are measured once where a budget is given and there is no such file. Without shares (LoRA, "
          "split=uniform) and with a smaller budget a prompt is read first, and keeps at its end what its last 32 "
          "queries attend to (critical). Tokens keep their positions while the text fits the trained context, and are "
          "renumbered from then on. Pins the system prompt of chats",
          {.name = std::string(kAutoMethod),
           .policy = std::string(kAutoPolicy),
           .protection = {.sinks = 4, .recent = Share::of_budget(0.25)},
           .budget = kAutoBudget,
           .split = Split::kAuto,
           .schedule = Schedule::kPromptStep,
           .prompt_max = kAutoBudget,
           .interval = 16,
           .positions = Positions::kAuto}};
}

Method choose_auto(const Method& method, const PlanTarget& target) {
  Method out = method;
  if (out.policy == kAutoPolicy && !target.shape.pages) {  // a device has no keys at hand to compare
    out.policy = "recent";
    out.schedule = Schedule::kStep;  // a prompt's end tells it nothing
  }
  if (out.schedule != Schedule::kPromptStep && out.prompt_max == kAutoBudget) out.prompt_max = 0;
  if (out.name == kAutoMethod && target.positions == PositionKind::kLearned) out.positions = Positions::kOriginal;
  if (out.name == kAutoMethod && out.positions == Positions::kAuto && out.windowed()) out.positions = Positions::kCache;

  const bool chooses = out.policy == kAutoPolicy;
  if (chooses)
    out.policy = out.waits_for_prompt() && method.budget != kAutoBudget ? kPolicyAtPromptEnd : kPolicyAsTokensCome;
  if (out.split == Split::kAuto) out.split = split_of(out, target);
  // With shares of heads it keeps what is asked for later, and what is asked at the prompt's end, without holding the
  // prompt (docs/decisions/0047-auto-as-tokens-come.md).
  if (chooses && out.split == Split::kProfile && method.prompt_max == kAutoBudget) {
    out.policy = kPolicyAsTokensCome;
    out.schedule = Schedule::kStep;
    out.prompt_max = 0;
  }
  return out;
}

bool wants_profile(const Method& method, PlanTarget target) {
  if (method.split == Split::kProfile || (method.recall > 0 && method.recall_heads < 1)) return true;
  target.profile_file = "?";
  return method.split == Split::kAuto && method.budget != kAutoBudget &&
         choose_auto(method, target).split == Split::kProfile;
}

void revise_auto(const Method& method, const PlanTarget& target, Method& out) {
  if (method.policy == kAutoPolicy && target.shape.pages && out.prompt_max > 0 && out.prompt_max <= out.budget)
    out.policy = kPolicyAsTokensCome;
}

bool pins_system_prompt(const Method& method, std::size_t tokens, bool marked) {
  return (method.name == kAutoMethod || (marked && method.split == Split::kUniform)) && method.budget > 0 &&
         tokens <= static_cast<std::size_t>(method.budget) / 4;
}

}  // namespace palimpsest
