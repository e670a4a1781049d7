// Texts that a model writes itself, to be fitted to if the user has none: conversations with a chat template, else
// documents that follow each other. What they are about is drawn from short lists; a text depends only on its number,
// so that a killed run goes on with the same texts.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "palimpsest/graph/decoder.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest {

inline constexpr int kOwnTextBatch = 4;  // texts that are written at a time, token by token

// Texts first .. first + count - 1, of `tokens` tokens each, count <= kOwnTextBatch. Includes the tokens of the chat
// template. `progress` counts tokens of all texts; returning false ends it, and the result is empty.
std::vector<std::vector<TokenId>> write_texts(
    const std::shared_ptr<Decoder>& decoder, const std::shared_ptr<const Vocabulary>& vocabulary, int first, int count,
    int tokens, const std::function<bool(long long done, long long total)>& progress = {});

}  // namespace palimpsest
