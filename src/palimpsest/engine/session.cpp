#include "palimpsest/engine/session.h"

#include <cassert>
#include <utility>

#include "palimpsest/graph/graph_threads.h"

namespace palimpsest {
namespace {

std::shared_ptr<Workers> workers_for(const Decoder& decoder, const MethodPlan& plan) {
  const Mechanism mechanism = plan.method().mechanism;
  const bool moves = mechanism == Mechanism::kShift || mechanism == Mechanism::kGather;
  return moves || plan.signals().at_decision() ? std::make_shared<GraphThreads>(decoder.threads()) : nullptr;
}

}  // namespace

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options)
    : Session(decoder, options, std::make_shared<MethodPlan>(options.method, plan_target(*decoder, options))) {}

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options,
                 std::shared_ptr<const MethodPlan> plan)
    : loop_(std::move(decoder)), sequence_(loop_.decoder(), options, plan, workers_for(loop_.decoder(), *plan)) {
  share_.sequence = &sequence_;
}

std::span<const float> Session::step() {
  StepShare* const share = &share_;
  loop_.run_or_throw({&share, 1});
  return share_.logits;
}

template <typename Done>
void Session::read_prompt(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done) {
  assert(!tokens.empty());
  sequence_.read(tokens, all_logits);
  while (sequence_.stage() != Sequence::Stage::kIdle) {
    const auto logits = step();
    if (!logits.empty()) done(logits);
    if (sequence_.stage() == Sequence::Stage::kRepeat) continue;
    const auto read = static_cast<long long>(sequence_.tokens_read());
    if (progress && !progress(read, static_cast<long long>(tokens.size()))) return;
  }
}

std::span<const float> Session::prefill(std::span<const TokenId> tokens, const Progress& progress) {
  std::span<const float> last;
  read_prompt(tokens, false, progress, [&](std::span<const float> logits) { last = logits; });
  return last;
}

std::span<const float> Session::decode(TokenId token) {
  return decode(token, {});
}

std::span<const float> Session::decode(TokenId token, std::span<const TokenId> drafts) {
  sequence_.read(token, drafts);
  return step();
}

void Session::read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress) {
  long long index = 0;
  const auto width = static_cast<std::size_t>(decoder().model().hyper().vocabulary);
  read_prompt(tokens, true, progress, [&](std::span<const float> logits) {
    for (; !logits.empty(); logits = logits.subspan(width)) visit(index++, logits.first(width));
  });
}

void Session::fill_slots(long long tokens) {
  if (tokens <= 0) return;
  const std::vector<TokenId> text(static_cast<std::size_t>(tokens));
  sequence_.read(text);
  while (sequence_.stage() != Sequence::Stage::kIdle) {
    sequence_.next();
    sequence_.done({});
  }
}

void Session::clear() {
  sequence_.clear();
}

}  // namespace palimpsest
