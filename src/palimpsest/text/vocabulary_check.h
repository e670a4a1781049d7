// Checks a vocabulary's metadata before libllama reads it: libllama aborts the program on bad metadata.
#pragma once

#include <span>
#include <string>

#include "palimpsest/core/gguf_override.h"

namespace palimpsest {

// Throws Error unless the file is complete GGUF and its tokenizer.* keys exist, have the right types and equal lengths,
// and satisfy libllama's assumptions: a tokenizer type that our families use, distinct tokens, a token for every byte,
// special tokens that exist.
void check_vocabulary(const std::string& gguf_path, std::span<const GgufOverride> overrides = {});

}  // namespace palimpsest
