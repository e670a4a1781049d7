#include "palimpsest/engine/sequence/repeat.h"

namespace palimpsest {

std::vector<TokenId> repeat_instruction(const Vocabulary& vocabulary) {
  return vocabulary.tokenize("\n\nRepeat the previous context exactly.\n", false, false);
}

}  // namespace palimpsest
