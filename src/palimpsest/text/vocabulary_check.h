// libllama trusts a vocabulary's metadata and ends the program where it is wrong: so it is checked before.
#pragma once

#include <string>

namespace palimpsest {

// Throws Error unless the file is GGUF and its tokenizer.* keys are there, of the right types and of equal lengths.
void check_vocabulary(const std::string& gguf_path);

}  // namespace palimpsest
