#include "palimpsest/engine/speculation/model_drafter.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "palimpsest/core/error.h"
#include "palimpsest/text/logprobs.h"

namespace palimpsest {
namespace {

// The likeliest token, and its probability.
std::pair<TokenId, float> likeliest(std::span<const float> logits) {
  const auto best = std::ranges::max_element(logits);
  return {static_cast<TokenId>(best - logits.begin()), static_cast<float>(std::exp(*best - log_sum_exp(logits)))};
}

void check_forgets(const MethodPlan& plan) {
  const Method& m = plan.method();
  if (!m.cache)
    fail("draft model: method {} has no cache that could forget rejected drafts; use another --draft-method", m.name);
  if (m.evicts() && m.how().changes_kept())
    fail("draft model: mechanism {} changes kept tokens and cannot forget rejected drafts; use another --draft-method",
         m.how().name);
  if (plan.cache().state_floats > 0)
    fail(
        "draft model: its layers with a recurrent state cannot forget rejected drafts; use another draft model, or "
        "--lookup");
  if (!plan.windows().empty())
    fail(
        "draft model: its layers have an attention window and drop tokens that are needed again after rejected "
        "drafts; use another draft model, or --lookup");
}

}  // namespace

ModelDrafter::ModelDrafter(std::shared_ptr<Decoder> decoder, const SessionOptions& options, float min_probability)
    : ModelDrafter(std::make_unique<Session>(std::move(decoder), options), min_probability) {}

ModelDrafter::ModelDrafter(std::unique_ptr<Session> session, float min_probability)
    : session_(std::move(session)), min_probability_(min_probability) {
  check_forgets(session_->sequence().plan());
}

void ModelDrafter::append(std::span<const TokenId> tokens) {
  if (failure_.empty()) unread_.insert(unread_.end(), tokens.begin(), tokens.end());
}

std::span<const TokenId> ModelDrafter::draft(int max) {
  drafts_.clear();
  if (unread_.empty() || max < 1) return {};
  try {
    draft_more(max);
  } catch (const std::exception& error) {  // the text goes on without drafts
    failure_ = error.what();
    spdlog::warn("no more drafts: draft model: {}", failure_);
    unread_.clear();
    session_->clear();
  }
  return drafts_;
}

void ModelDrafter::draft_more(int max) {
  // The last unread token stays unread until here, so that there are logits of its successor.
  const auto known = std::mismatch(ahead_.begin(), ahead_.end(), unread_.begin(), unread_.end() - 1).first;
  const auto same = static_cast<std::size_t>(known - ahead_.begin());
  forget(ahead_.size() - same);
  ahead_.clear();
  auto logits = read(std::span(unread_).subspan(same));
  unread_.clear();
  while (true) {
    const auto [token, probability] = likeliest(logits);
    if (probability < min_probability_) break;
    drafts_.push_back(token);
    if (std::ssize(drafts_) == max) break;
    logits = session_->decode(token);
    ahead_.push_back(token);
  }
}

// The newest tokens of the session.
void ModelDrafter::forget(std::size_t tokens) {
  if (tokens > 0) session_->rewind(session_->position() - static_cast<Position>(tokens));
}

// A prompt as such; a few tokens as decode steps, so that methods that evict at a prompt's end need not.
std::span<const float> ModelDrafter::read(std::span<const TokenId> tokens) {
  if (session_->position() == 0 || tokens.size() > 64) return session_->prefill(tokens);
  std::span<const float> logits;
  for (const TokenId token : tokens) logits = session_->decode(token);
  return logits;
}

void check_same_vocabulary(const Vocabulary& target, const Vocabulary& draft) {
  if (target.size() != draft.size())
    fail("the draft model has {} tokens and the model {}: take a draft model of the same family", draft.size(),
         target.size());
  for (TokenId token = 0; token < target.size(); ++token)
    if (target.piece(token, true) != draft.piece(token, true))
      fail("token {} is '{}' in the draft model and '{}' in the model: take a draft model of the same family", token,
           draft.piece(token, true), target.piece(token, true));
}

}  // namespace palimpsest
