// The parse state of a text in a grammar, and the tokens that may follow.
//
// A parse in progress is a stack of grammar elements. Several may be possible at once; stacks share their lower parts
// (each is one node and its parent), and a *state* is the set of all possible stacks. Transitions are computed lazily
// and cached: a deterministic automaton, discarded when it grows large.
//
// All work is counted: a token that costs more than kMaxGrammarWork throws GrammarError. The count does not depend on
// the machine or on other requests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/types.h"
#include "palimpsest/text/grammar/rules.h"
#include "palimpsest/text/token_texts.h"

namespace palimpsest {

inline constexpr std::size_t kMaxGrammarWork = 1'000'000;  // per token: about 10 ms
inline constexpr std::size_t kMaxGrammarStacks = 4096;     // possible at one position of the text
inline constexpr std::size_t kMaxGrammarNodes = 65536;     // in all stacks of one position: bounds nesting

// A text reached a limit of its grammar: the request is at fault, not the model.
class GrammarError : public Error {
 public:
  using Error::Error;
};

class GrammarMatcher {
 public:
  // Both are immutable and shared with other matchers. Throws Error for a grammar that matches no text, or whose start
  // exceeds the limits.
  GrammarMatcher(std::shared_ptr<const GrammarRules> rules, std::shared_ptr<const TokenTexts> texts);

  // These throw Error beyond a limit; the matcher is unusable then.
  bool allows(TokenId token);
  bool allows_end() const;                       // the text may end here
  void allowed(std::vector<std::uint8_t>& out);  // [tokens] 1 or 0; 0 for end tokens
  void accept(TokenId token);                    // an allowed token, not an end token
  bool accept(std::string_view text);            // false, without a change, if the text is not allowed

  // The parse state as numbers, for the same grammar. restore() throws Error for numbers that save() cannot have
  // written.
  std::vector<std::int32_t> save() const;
  void restore(std::span<const std::int32_t> saved);

  std::size_t bytes() const;  // of memory, approximate

 private:
  using StateId = std::uint32_t;
  using NodeId = std::uint32_t;
  static constexpr StateId kNoMatch = 0, kUnknown = ~StateId{0};
  static constexpr NodeId kBottom = 0;  // the empty stack: all is matched

  struct Node {
    std::uint32_t index = 0;  // of the element to match next
    NodeId parent = 0;        // continues at the end of this node's alternative; always less than the node's own id
  };
  struct Step {
    std::uint32_t first = 0, last = 0;  // code points
    StateId to = kNoMatch;
  };
  struct State {
    std::vector<NodeId> stacks;  // ascending; each top is a character, a class, a token or the bottom
    std::array<StateId, 128> ascii;
    std::vector<Step> wide;  // ascending
    bool has_tokens = false;
  };
  // A position between the bytes of a text, possibly inside a character.
  struct Point {
    StateId state = kNoMatch;
    std::uint32_t value = 0;            // bits of the character's bytes so far
    std::uint8_t left = 0, length = 0;  // bytes of the character: remaining and total
  };

  void spend(std::size_t work);
  NodeId node(std::uint32_t index, NodeId parent);
  NodeId after(NodeId id);  // the stack after its top is matched
  void close(std::vector<NodeId>& seeds, std::vector<NodeId>& out);
  StateId state_of(std::vector<NodeId>& stacks);
  StateId start(std::span<const std::uint32_t> alternatives);
  StateId next(StateId state, std::uint32_t character);
  StateId compute(StateId state, std::uint32_t character, Step& step);
  StateId after_token(StateId state, TokenId token);
  bool meets(const GrammarRules::Element& element, std::uint32_t low, std::uint32_t high) const;
  bool match(const GrammarRules::Element& element, std::uint32_t character, Step& step) const;
  bool advance(Point& point, std::uint8_t byte);
  bool can_continue(const Point& point) const;
  bool read(Point& point, std::string_view text);
  void shrink();

  std::shared_ptr<const GrammarRules> rules_;
  std::shared_ptr<const TokenTexts> texts_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, NodeId> node_ids_;
  std::vector<State> states_;
  std::unordered_multimap<std::size_t, StateId> state_ids_;  // by a hash of the stacks
  Point here_;
  std::size_t work_ = 0;

  std::vector<std::uint32_t> visited_;  // [nodes] number of the last close() that visited it
  std::uint32_t closing_ = 0;
  std::vector<NodeId> seeds_, stacks_;  // scratch
  std::vector<Point> path_;
};

}  // namespace palimpsest
