#include "palimpsest/engine/session.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "palimpsest/graph/graph_threads.h"

namespace palimpsest {
namespace {

std::shared_ptr<Workers> workers_for(const Decoder& decoder, const MethodPlan& plan) {
  return plan.method().how().moves_rows || plan.signals().at_decision()
             ? std::make_shared<GraphThreads>(decoder.threads())
             : nullptr;
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
  std::size_t remembered = 0;
  while (sequence_.stage() != Sequence::Stage::kIdle) {
    const auto logits = step();
    remember(tokens.subspan(remembered, sequence_.tokens_read() - remembered));
    remembered = sequence_.tokens_read();
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

void Session::record_memory() {
  memory_log_ = std::make_shared<MemoryLog>(kMaxMemory);
  sequence_.set_memory_log(memory_log_);
  set_text({});
}

void Session::remember(std::span<const TokenId> tokens) {
  if (memory_log_ == nullptr) return;
  const auto some = tokens.first(std::min(tokens.size(), kMaxMemory - text_.size()));
  text_.insert(text_.end(), some.begin(), some.end());
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
