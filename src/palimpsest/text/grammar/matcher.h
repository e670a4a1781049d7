// Where a text stands in a grammar, and which tokens may follow.
//
// A parse in progress is a stack of places in the rules. Many may be possible at once; stacks share their lower parts
// (each is one node and its parent), and a *state* is the set of all possible stacks. Steps from state to state are
// computed once and kept: a deterministic automaton made as far as it is needed, thrown away when it grows large.
//
// All work is counted: a token that costs more than kMaxGrammarWork throws Error, whatever the grammar. The count does
// not depend on the machine or on other requests.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/grammar/rules.h"
#include "palimpsest/text/token_texts.h"

namespace palimpsest {

inline constexpr std::size_t kMaxGrammarWork = 1'000'000;  // for one token: some 10 ms
inline constexpr std::size_t kMaxGrammarStacks = 4096;     // possible at one place of the text
inline constexpr std::size_t kMaxGrammarNodes = 65536;     // in all stacks of one place: how deep a text may nest

class GrammarMatcher {
 public:
  // Both are shared with other matchers and not changed. Throws Error for a grammar that matches no text at all, or
  // costs too much at its beginning.
  GrammarMatcher(std::shared_ptr<const GrammarRules> rules, std::shared_ptr<const TokenTexts> texts);

  // These throw Error beyond a limit; the matcher is of no use then.
  bool allows(TokenId token);
  bool allows_end() const;                       // the text may end here
  void allowed(std::vector<std::uint8_t>& out);  // of each token 1 or 0; not of the ends of a text
  void accept(TokenId token);                    // one that is allowed, and no end

  // As plain numbers, for the same grammar again. restore() throws Error for what save() cannot have written.
  std::vector<std::int32_t> save() const;
  void restore(std::span<const std::int32_t> saved);

  std::size_t bytes() const;  // of memory, about

 private:
  using StateId = std::uint32_t;
  using NodeId = std::uint32_t;
  static constexpr StateId kEmptySlot = 0, kUnknown = ~StateId{0};
  static constexpr NodeId kBottom = 0;  // the empty stack: all is matched

  struct Node {
    std::uint32_t place = 0;  // of the element to be matched next
    NodeId parent = 0;        // goes on when this one's alternative has ended; always less than the node itself
  };
  struct Step {
    std::uint32_t first = 0, last = 0;  // code points
    StateId to = kEmptySlot;
  };
  struct State {
    std::vector<NodeId> stacks;  // ascending; their tops are characters, classes or tokens, or the bottom
    std::array<StateId, 128> ascii;
    std::vector<Step> wide;  // ascending
    bool has_tokens = false;
  };
  // A place between the bytes of a text, perhaps inside a character.
  struct Point {
    StateId state = kEmptySlot;
    std::uint32_t value = 0;            // of the character's bytes so far
    std::uint8_t left = 0, length = 0;  // bytes of the character: to come, and in all
  };

  void spend(std::size_t work);
  NodeId node(std::uint32_t place, NodeId parent);
  NodeId after(NodeId id);  // when the top of a stack is matched
  void close(std::vector<NodeId>& seeds, std::vector<NodeId>& out);
  StateId state_of(std::vector<NodeId>& stacks);
  StateId start(std::span<const std::uint32_t> alternatives);
  StateId next(StateId state, std::uint32_t character);
  StateId compute(StateId state, std::uint32_t character, Step& step);
  StateId after_token(StateId state, TokenId token);
  bool meets(const GrammarRules::Element& element, std::uint32_t low, std::uint32_t high) const;
  bool match(const GrammarRules::Element& element, std::uint32_t character, Step& step) const;
  bool advance(Point& point, std::uint8_t byte);
  bool can_go_on(const Point& point) const;
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

  std::vector<std::uint32_t> visited_;  // of each node: the number of the last close() that saw it
  std::uint32_t closing_ = 0;
  std::vector<NodeId> seeds_, stacks_;  // scratch
  std::vector<Point> path_;
};

}  // namespace palimpsest
