// Tokens of texts for encoders.
#pragma once

#include <string_view>
#include <vector>

#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

// With the tokens that the vocabulary has at both ends ([CLS], [SEP]), and control tokens.
std::vector<TokenId> encoder_tokens(const Vocabulary& vocabulary, std::string_view text);

// A query and a document for a model that ranks, as llama-server joins them: in the file's own form
// (tokenizer.chat_template.rerank, where control tokens in the texts have an effect), else with the separators that the
// vocabulary asks for.
std::vector<TokenId> pair_tokens(const Vocabulary& vocabulary, std::string_view query, std::string_view document);

}  // namespace palimpsest
