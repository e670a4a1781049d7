#include "palimpsest/engine/session.h"

#include <cassert>
#include <utility>

namespace palimpsest {
namespace {

std::shared_ptr<Workers> workers_for(const Decoder& decoder, const Method& method) {
  const Needs needs = Evictor(method).needs();
  const bool moves = method.mechanism == Mechanism::kShift || method.mechanism == Mechanism::kGather;
  return moves || needs.at_decision() ? std::make_shared<Workers>(decoder.threads()) : nullptr;
}

}  // namespace

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options)
    : decoder_(std::move(decoder)), sequence_(*decoder_, options, workers_for(*decoder_, options.method)) {}

template <typename Done>
void Session::in_chunks(std::span<const TokenId> tokens, bool prompt, bool all_logits, const Progress& progress,
                        Done done) {
  const auto all = tokens;
  const auto total = static_cast<long long>(tokens.size());
  const auto vocabulary = static_cast<std::size_t>(decoder_->model().hyper().vocabulary);
  while (!tokens.empty()) {
    Moment moment = prompt ? Moment::kPrompt : Moment::kDecode;
    const auto chunk = tokens.first(sequence_.make_room(tokens.size(), moment, all_logits));
    tokens = tokens.subspan(chunk.size());
    const SequenceStep step = sequence_.begin(chunk, all_logits);
    const auto logits = decoder_->step({&step, 1});
    if (prompt && tokens.empty()) moment = Moment::kPromptEnd;
    const bool repeats = moment == Moment::kPromptEnd && sequence_.repeats();
    sequence_.end(chunk.size(), repeats ? Moment::kPrompt : moment);
    done(logits.last(all_logits ? chunk.size() * vocabulary : vocabulary), chunk.size());
    if (repeats) repeat(all);
    if (progress && !progress(total - static_cast<long long>(tokens.size()), total)) return;
  }
}

std::span<const float> Session::prefill(std::span<const TokenId> tokens, const Progress& progress) {
  assert(!tokens.empty());
  std::span<const float> last;
  in_chunks(tokens, true, false, progress, [&](std::span<const float> logits, std::size_t) {
    last = logits;
    if (!sequence_.repeats()) return;
    last_.assign(logits.begin(), logits.end());
    last = last_;
  });
  return last;
}

void Session::repeat(std::span<const TokenId> prompt) {
  for (std::size_t from = 0; from < prompt.size();) {
    const SequenceStep step = sequence_.begin_repeat(prompt, from);
    decoder_->step({&step, 1});
    sequence_.end_repeat();
  }
  sequence_.end(0, Moment::kPromptEnd);
}

std::span<const float> Session::decode(TokenId token) {
  std::span<const float> last;
  in_chunks({&token, 1}, false, false, {}, [&](std::span<const float> logits, std::size_t) { last = logits; });
  return last;
}

void Session::read(std::span<const TokenId> tokens, const Visit& visit, const Progress& progress) {
  long long index = 0;
  in_chunks(tokens, true, true, progress, [&](std::span<const float> logits, std::size_t count) {
    const std::size_t width = logits.size() / count;
    for (std::size_t i = 0; i < count; ++i) visit(index++, logits.subspan(i * width, width));
  });
}

void Session::pretend(long long tokens) {
  while (tokens > 0) {
    const std::size_t chunk = sequence_.make_room(static_cast<std::size_t>(tokens), Moment::kPrompt, false);
    tokens -= static_cast<long long>(chunk);
    sequence_.pretend(static_cast<int>(chunk));
    sequence_.end(chunk, tokens > 0 ? Moment::kPrompt : Moment::kPromptEnd);
  }
}

void Session::clear() {
  sequence_.clear();
}

}  // namespace palimpsest
