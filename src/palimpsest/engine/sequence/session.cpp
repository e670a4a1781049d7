#include "palimpsest/engine/sequence/session.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

std::shared_ptr<Workers> workers_for(const Decoder& decoder, const MethodPlan& plan) {
  return plan.method().how().moves_rows || plan.method().how().fits || plan.signals().at_decision() ? decoder.workers()
                                                                                                    : nullptr;
}

}  // namespace

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options)
    : Session(decoder, options, std::make_shared<MethodPlan>(options.method, plan_target(*decoder, options))) {}

Session::Session(std::shared_ptr<Decoder> decoder, const SessionOptions& options,
                 std::shared_ptr<const MethodPlan> plan, std::shared_ptr<PagePool> pool)
    : loop_(std::move(decoder)),
      sequence_(loop_.decoder(), options, plan, workers_for(loop_.decoder(), *plan), std::move(pool)) {
  share_.sequence = &sequence_;
}

Session::Session(const Session& like, const std::shared_ptr<PagePool>& pool)
    : Session(like.shared_decoder(), like.options(), like.sequence_.shared_plan(), pool) {}

std::span<const float> Session::step() {
  StepShare* const share = &share_;
  loop_.run_or_throw({&share, 1});
  return share_.logits;
}

template <typename Done>
void Session::read_prompt(std::span<const TokenId> tokens, bool all_logits, const Progress& progress, Done done) {
  assert(!tokens.empty());
  sequence_.read(tokens, all_logits);
  std::size_t remembered = 0;
  while (sequence_.stage() != Sequence::Stage::kIdle) {
    const auto logits = step();
    remember(tokens.subspan(remembered, sequence_.tokens_read() - remembered));
    remembered = sequence_.tokens_read();
    if (!logits.empty()) done(logits);
    if (sequence_.stage() == Sequence::Stage::kRepeat) continue;
    const auto read = static_cast<long long>(sequence_.progress());
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
  const auto logits = step();
  remember({&token, 1});
  if (memory_log_ != nullptr) drafts_.assign(drafts.begin(), drafts.end());
  return logits;
}

void Session::accept(int drafts) {
  sequence_.accept(drafts);
  remember(std::span<const TokenId>(drafts_).first(std::min(at(drafts), drafts_.size())));
  drafts_.clear();
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

void Session::rewind(Position position) {
  sequence_.rewind(position);
  if (std::ssize(text_) > position) text_.resize(static_cast<std::size_t>(position));
}

void Session::clear() {
  sequence_.clear();
  text_.clear();
}

std::span<const float> Session::edit(Position first, Position last, std::span<const TokenId> tokens, EditMode mode,
                                     std::span<const TokenId> text) {
  if (text.empty()) text = text_;
  const bool known = std::ssize(text) == position() && std::ranges::find(text, -1) == text.end();
  const PositionRange range{first, last};
  sequence_.check_edit(range);
  std::vector<TokenId> after;
  if (mode == EditMode::kExact) {
    if (!known)
      fail("mode exact reads tokens again: give the {} tokens of the text ({} are known)", position(), text.size());
  }
  if (known) after = edited(text, range, tokens);
  std::span<const float> last_logits;
  if (mode == EditMode::kExact) {
    // The last token is always read: for its logits.
    const Position end = std::max<Position>(0, std::ssize(after) - 1);
    const Position start = sequence_.unaffected_until(std::min(first, end), std::ssize(after));
    start > 0 ? rewind(start) : clear();
    if (const auto rest = std::span<const TokenId>(after).subspan(at(start)); !rest.empty())
      last_logits = prefill(rest);
  } else {
    const bool middle = last < position();
    sequence_.edit(range, tokens, decoder().model().hyper());
    while (sequence_.stage() != Sequence::Stage::kIdle)
      if (const auto logits = step(); !logits.empty() && !middle) last_logits = logits;
  }
  if (known) set_text(after);
  return last_logits;
}

void Session::drop(Position first, Position last) {
  sequence_.drop({first, last}, decoder().model().hyper());
  text_.resize(std::min(text_.size(), at(position())));
}

void Session::shift(Position first, Position last, Position by) {
  sequence_.shift({first, last}, by, decoder().model().hyper());
  set_text({});
}

std::unique_ptr<Session> Session::fork() {
  if (!method().cache) fail("method {} has no cache: its sessions cannot fork", method().name);
  std::unique_ptr<Session> copy(new Session(*this, sequence_.cache().pool()));
  copy->sequence_.continue_from(sequence_.cache(), sequence_.state(), sequence_.in_prompt());
  copy->sequence_.copy_recall(sequence_);
  return copy;
}

void Session::record_memory() {
  memory_log_ = std::make_shared<MemoryLog>(kMaxMemory);
  sequence_.set_memory_log(memory_log_);
  set_text({});
}

void Session::remember(std::span<const TokenId> tokens) {
  if (memory_log_ == nullptr) return;
  const auto recorded = tokens.first(std::min(tokens.size(), kMaxMemory - text_.size()));
  text_.insert(text_.end(), recorded.begin(), recorded.end());
}

void Session::set_text(std::span<const TokenId> tokens) {
  if (memory_log_ == nullptr) return;
  text_.assign(tokens.begin(), tokens.end());
  text_.resize(std::min(kMaxMemory, static_cast<std::size_t>(position())), -1);
}

MemoryMap Session::memory_map(const MemoryQuery& query) const {
  return palimpsest::memory_map(sequence_, text_, memory_log_.get(), query);
}

}  // namespace palimpsest
