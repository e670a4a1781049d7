#include "palimpsest/text/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/sampler_options.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {
namespace {

constexpr std::int32_t kWaiting = -2;  // first number of a state that waits for a trigger; its bytes follow

std::shared_ptr<const GrammarRules> compiled(const SamplerOptions& options, const Vocabulary& vocabulary) {
  if (options.compiled != nullptr) return options.compiled;
  return std::make_shared<const GrammarRules>(compile_grammar(options.grammar, &vocabulary));
}

}  // namespace

GrammarConstraint::GrammarConstraint(const SamplerOptions& options, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary),
      texts_(vocabulary.token_texts(options.grammar_tokens)),
      matcher_(compiled(options, vocabulary), texts_),
      triggers_(options.grammar_triggers),
      waiting_(!triggers_.empty()) {
  if (!options.grammar_prefix.empty() && !matcher_.accept(options.grammar_prefix))
    fail("the grammar does not begin with what the prompt ends with");
}

bool GrammarConstraint::allows(TokenId token) {
  if (token >= vocabulary_.size()) return false;
  if (waiting_) return true;
  return vocabulary_.is_end(token) ? matcher_.allows_end() : matcher_.allows(token);
}

void GrammarConstraint::allowed(std::vector<std::uint8_t>& out) {
  const auto size = static_cast<std::size_t>(vocabulary_.size());
  if (waiting_) {
    std::ranges::fill(out, 0);
    std::ranges::fill_n(out.begin(), static_cast<std::ptrdiff_t>(size), 1);
    return;
  }
  matcher_.allowed(out);
  if (!matcher_.allows_end()) return;
  for (TokenId token = 0; token < vocabulary_.size(); ++token)
    if (vocabulary_.is_end(token)) out[static_cast<std::size_t>(token)] = 1;
}

void GrammarConstraint::accept(TokenId token) {
  if (vocabulary_.is_end(token)) return;
  if (waiting_)
    look_for_trigger(token);
  else
    matcher_.accept(token);
}

// The grammar matches from the first trigger's first character on. Text that it refuses stays free.
void GrammarConstraint::look_for_trigger(TokenId token) {
  const std::string_view piece = (*texts_)[token];
  tail_ += piece;
  std::size_t first = std::string::npos, longest = 0;
  for (const std::string& trigger : triggers_) {
    first = std::min(first, tail_.find(trigger));
    longest = std::max(longest, trigger.size());
  }
  if (first != std::string::npos && matcher_.accept(std::string_view(tail_).substr(first))) {
    waiting_ = false;
    tail_.clear();
    return;
  }
  if (first != std::string::npos) tail_.erase(0, first + 1);
  if (tail_.size() >= longest) tail_.erase(0, tail_.size() - longest + 1);
}

std::vector<std::int32_t> GrammarConstraint::save() const {
  if (!waiting_) return matcher_.save();
  std::vector<std::int32_t> out = {kWaiting};
  for (const char c : tail_) out.push_back(static_cast<unsigned char>(c));
  return out;
}

void GrammarConstraint::restore(std::span<const std::int32_t> saved) {
  const bool waits = !saved.empty() && saved.front() == kWaiting;
  if (waits && triggers_.empty()) fail("the saved state belongs to another grammar: use the same grammar");
  waiting_ = waits;
  tail_.clear();
  if (!waits) return matcher_.restore(saved);
  for (const std::int32_t byte : saved.subspan(1)) tail_ += static_cast<char>(byte);
}

}  // namespace palimpsest
