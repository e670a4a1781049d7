// Updates of a running request's memory map: differences, for a client that shows it (Request::memory).
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "palimpsest/engine/sequence/memory_map.h"

namespace palimpsest {

struct MemoryView {           // what a request wants to see
  int layer = -1, head = -1;  // a KV head whose slots and scores are part of each update; -1: none
};

// At most one update in 50 ms, one after the prompt, and one at the end.
struct MemoryUpdate {
  Position read = 0;                       // tokens of the text that the model has read
  Position first = 0;                      // position of tokens[0]
  std::vector<TokenId> tokens = {};        // the text's since the last update; -1: unknown
  std::optional<MemoryState> start = {};   // replaces what the client knows of the cache; nullopt: nothing was replaced
  std::vector<MemoryChange> changes = {};  // since the last update, after `start`
  MemoryBytes bytes = {};
  // Flat heads and what they keep: the chosen head; in the last update all heads, if they keep at most kMaxHeadTokens.
  std::vector<std::pair<int, std::vector<HeadToken>>> heads = {};
  std::shared_ptr<const MethodPlan> plan = {};  // in the first update; else nullptr
  bool last = false;

  static constexpr std::size_t kMaxChanges = 1 << 14;  // in one update; more become a new `start`
  static constexpr int kMaxHeadTokens = 1 << 16;
};

}  // namespace palimpsest
