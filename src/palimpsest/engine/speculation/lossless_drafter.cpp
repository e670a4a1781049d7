#include "palimpsest/engine/speculation/lossless_drafter.h"

#include <algorithm>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

std::unique_ptr<Session> small_session(const Session& full, const SessionOptions& options) {
  SessionOptions small = options;
  small.beside_full = true;
  small.draft_max = 0;
  small.memory_limit = 0;  // it shares pages with the full cache, which has the limit
  const auto plan = std::make_shared<MethodPlan>(small.method, plan_target(full.decoder(), small));
  return std::make_unique<Session>(full.shared_decoder(), small, plan, full.cache().pool());
}

// The last tokens of a prompt whose queries the policy needs.
std::size_t queries_at_end(const Signals& signals) {
  int queries = 1;
  if (signals.attention_window) queries = std::max(queries, signals.attention_window->queries);
  if (signals.references) queries = std::max(queries, signals.references->queries);
  return at(queries);
}

}  // namespace

LosslessDrafter::LosslessDrafter(Session& full, const SessionOptions& small, float min_probability)
    : ModelDrafter(small_session(full, small), min_probability), full_(full) {
  const Signals signals = session().sequence().plan().signals(Phase::kPrefill);
  tail_ = std::max(kTail, queries_at_end(signals));
  shares_ = !signals.score_on_insert && !signals.insert_score && !signals.repeat;
}

// The full session has read all of `tokens` but the last.
std::span<const float> LosslessDrafter::read(std::span<const TokenId> tokens) {
  const Position end = full_.position();
  copied_ = std::min({copied_, session().position(), end});
  read_from_full(tokens.first(tokens.size() - 1));
  session().sequence().copy_rows(full_.cache(), {copied_, end});
  copied_ = end;
  return session().decode(tokens.back());
}

// Tokens that the full session has read and this one has not.
void LosslessDrafter::read_from_full(std::span<const TokenId> tokens) {
  constexpr std::size_t kSteps = 2;  // more are read together, as a prompt
  const bool continues = session().position() + std::ssize(tokens) == full_.position();
  Cache& full = full_.sequence().cache();
  const bool shares = shares_ && !tokens.empty() && session().cache().can_share(full);
  if (shares && (!continues || tokens.size() > kTail)) {
    tokens = tokens.last(std::min(tokens.size(), tail_));
    session().clear();
    copied_ = full_.position() - std::ssize(tokens);
    if (copied_ > 0) session().sequence().continue_from(full, copied_);
  } else if (!continues) {  // another text, which is read anew if all of it is known
    if (std::ssize(tokens) < full_.position())
      fail("the text was cut, and the small cache of {} cannot be made from the full one: begin a new text",
           session().method().name);
    tokens = tokens.last(at(full_.position()));
    session().clear();
    copied_ = 0;
  }
  if (tokens.size() > kSteps)
    session().prefill(tokens);
  else
    for (const TokenId token : tokens) session().decode(token);
}

SessionOptions full_beside(const SessionOptions& small, int draft_max) {
  SessionOptions full = small;
  full.method = parse_method("full");
  full.beside_full = false;
  full.layerwise = false;
  full.draft_max = draft_max;
  return full;
}

}  // namespace palimpsest
