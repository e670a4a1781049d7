#include "palimpsest/text/encoder_text.h"

#include <llama.h>

#include <string>

namespace palimpsest {
namespace {

const llama_vocab* vocab_of(const Vocabulary& vocabulary) {
  return llama_model_get_vocab(vocabulary.model());
}

std::string filled_form(std::string_view form, std::string_view query, std::string_view document) {
  constexpr std::string_view kQuery = "{query}", kDocument = "{document}";
  std::string out;
  while (!form.empty()) {
    if (form.starts_with(kQuery)) {
      out += query;
      form.remove_prefix(kQuery.size());
    } else if (form.starts_with(kDocument)) {
      out += document;
      form.remove_prefix(kDocument.size());
    } else {
      out += form.front();
      form.remove_prefix(1);
    }
  }
  return out;
}

}  // namespace

// Vocabulary::tokenize takes an EOS away that libllama adds. WordPiece adds its separator instead, which may be EOS.
std::vector<TokenId> encoder_tokens(const Vocabulary& vocabulary, std::string_view text) {
  const llama_vocab* const vocab = vocab_of(vocabulary);
  std::vector<TokenId> tokens = vocabulary.tokenize(text, true, true);
  const bool word_piece = llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_WPM;
  const TokenId eos = vocabulary.eos();
  if (llama_vocab_get_add_eos(vocab) && eos >= 0 && (!word_piece || eos == llama_vocab_sep(vocab)))
    tokens.push_back(eos);
  return tokens;
}

std::vector<TokenId> pair_tokens(const Vocabulary& vocabulary, std::string_view query, std::string_view document) {
  if (const char* const form = llama_model_chat_template(vocabulary.model(), "rerank"))
    return vocabulary.tokenize(filled_form(form, query, document), false, true);
  const llama_vocab* const vocab = vocab_of(vocabulary);
  std::vector<TokenId> out;
  const auto add = [&](bool wanted, TokenId token) {
    if (wanted && token >= 0) out.push_back(token);
  };
  const auto add_text = [&](std::string_view text) {
    const std::vector<TokenId> tokens = vocabulary.tokenize(text, false, false);
    out.insert(out.end(), tokens.begin(), tokens.end());
  };
  const TokenId sep = llama_vocab_sep(vocab), end = vocabulary.eos() >= 0 ? vocabulary.eos() : sep;
  const bool ends = llama_vocab_get_add_eos(vocab);
  add(llama_vocab_get_add_bos(vocab), vocabulary.bos());
  add_text(query);
  add(ends, end);
  add(llama_vocab_get_add_sep(vocab), sep);
  add_text(document);
  add(ends, end);
  return out;
}

}  // namespace palimpsest
