// Fills a cache as prefill and generation would, without running the model: inserts a prompt and then single tokens
// with random keys and values; the method scores and evicts them. The occupied slots of each page are then those that
// independent scores would leave.
#pragma once

#include <cstdint>

#include "palimpsest/engine/sequence/sequence.h"

namespace palimpsest {

// Inserts `prompt` tokens in chunks, then single tokens up to `tokens` in all. Does not write rows of keys and values
// (fill_pages_with_noise does). Throws Error for methods that need attention weights or keys in the cache: they need a
// real prompt.
void simulate_generation(Sequence& sequence, int prompt, int tokens, std::uint32_t seed);

// Copies tokens, slots and pages; both sequences have the same options.
void copy(const Sequence& from, Sequence& to);

}  // namespace palimpsest
