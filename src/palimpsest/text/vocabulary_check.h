// libllama trusts a vocabulary's metadata and ends the program where they are wrong: so they are checked before.
#pragma once

#include <string>

namespace palimpsest {

// Throws Error unless the file is whole GGUF and its tokenizer.* keys are there, of the right types, of equal lengths,
// and hold what libllama asserts or takes for granted: a kind of tokenizer that our families have, tokens that differ,
// a token for every byte, special tokens that exist.
void check_vocabulary(const std::string& gguf_path);

}  // namespace palimpsest
