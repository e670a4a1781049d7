// A cache as a generation would have left it, without running the model: tokens come as a prompt and then one by one,
// each with a key and a value of noise, which the method scores as it would the model's; those that the method drops
// leave. What is where, page by page, is then what independent scores make of it.
#pragma once

#include <cstdint>

#include "palimpsest/engine/sequence.h"

namespace palimpsest {

// `prompt` tokens in chunks, then up to `tokens` in all. Rows of keys and values are not written (fill_pages_with_noise
// does that). Throws Error for methods that decide by attention or by keys in the cache: they need a real prompt.
void live_through(Sequence& sequence, int prompt, int tokens, std::uint32_t seed);

// The same tokens in the same slots, and the bytes of their pages; both have the same options.
void copy(const Sequence& from, Sequence& to);

}  // namespace palimpsest
