// A text with each token's ink fading as heads forget it, for a terminal or as HTML.
#pragma once

#include <string>

#include "palimpsest/engine/sequence/memory_map.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::cli {

// Plain: partly kept text is marked as [~ ... ~], forgotten text as [- ... -].
enum class Ink { kPlain, k256, kTrueColor };
// How standard error shows ink: plain unless it is a terminal; COLORTERM, TERM and NO_COLOR count.
Ink ink_of_terminal();

// The text; sinks and pinned tokens are underlined, and forgotten tokens are struck through as well as faint.
std::string memory_text(const MemoryMap& map, const Vocabulary& vocabulary, Ink ink);
// "412 tokens: 60 in all 12 heads, 0 in some, 352 forgotten; cache 180.0 KiB, full cache 1.2 MiB"
std::string memory_line(const MemoryMap& map);
// A page of its own.
std::string memory_html(const MemoryMap& map, const Vocabulary& vocabulary, const std::string& method);

}  // namespace palimpsest::cli
