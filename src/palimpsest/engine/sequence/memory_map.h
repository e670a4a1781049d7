// The memory map of a sequence: for each token of its text how many heads keep it, and for one head where and with what
// score. `palimpsest run --show-memory`, `chat`, and the server's memory endpoints and events are made from it.
//
// A head keeps a token that has a slot, or that was merged into another token's slot (cache/merged.h). Shares of a
// value that CaM adds to later tokens are not kept tokens.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "palimpsest/engine/sequence/memory_log.h"
#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {

// Keys and values, in whole pages.
struct MemoryBytes {
  std::size_t cache = 0;  // in use
  std::size_t limit = 0;  // max while text is generated (decode_bytes); 0: the method has no bound
  std::size_t full = 0;   // of a cache that keeps all tokens of the text: `cache`, until a token is evicted
};

// A token that a head keeps.
struct HeadToken {
  Position position = 0;
  int slot = 0;                 // of merged tokens, the slot that they share
  float score = 0;              // the policy's last; 0 if it keeps none
  Position into = kNoPosition;  // merged into the token at this position
};

struct MemoryMap {
  struct Token {
    TokenId id = -1;                    // -1: unknown, the text was not recorded
    int kept = 0;                       // heads in which it has a slot of its own
    int merged = 0;                     // heads in which it was merged into another slot
    Position evicted_at = kNoPosition;  // tokens of the text when the last head dropped it; kNoPosition: a head keeps
                                        // it, or the time was not recorded
    bool sink = false;                  // one of the first tokens that the method protects
    bool pinned = false;                // of a pinned span; at the start of the text also a sink
  };
  Position first = 0;         // position of tokens[0]
  Position next = 0;          // tokens of the text
  int layers = 0, heads = 0;  // heads: KV heads of all layers
  std::vector<Token> tokens = {};
  std::vector<HeadToken> head = {};  // of MemoryQuery::head, by position
  MemoryBytes bytes = {};
};

struct MemoryQuery {
  Position first = 0, max = kMaxTokens;  // tokens of the map
  int layer = -1, head = -1;             // KV head of a layer for MemoryMap::head; -1: none
  static constexpr Position kMaxTokens = 1 << 16;
};

// `text`: [position] token ids, as far as they are known. `log`: for MemoryMap::Token::evicted_at; may be nullptr.
// Throws Error for a head that the model has not, and for methods without a cache.
MemoryMap memory_map(const Sequence& sequence, std::span<const TokenId> text, const MemoryLog* log,
                     const MemoryQuery& query = {});

std::vector<HeadToken> head_memory(const Cache& cache, int head);  // by position; `head`: flat
MemoryBytes memory_bytes(const Sequence& sequence);
// Flat index; throws Error if there is no such head.
int flat_head(const HeadGeometry& geometry, int layer, int head);

}  // namespace palimpsest
