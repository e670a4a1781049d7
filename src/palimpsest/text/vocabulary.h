// Tokenization with libllama, loaded vocabulary-only.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"
#include "palimpsest/text/token_texts.h"

namespace palimpsest {

struct ChatMessage {
  std::string role, content;  // "system", "user", "assistant"
};

class Vocabulary {
 public:
  static std::shared_ptr<Vocabulary> load(const std::string& gguf_path);  // throws Error
  ~Vocabulary();

  int size() const;
  std::string kind() const;  // "SPM", "BPE", ...
  // `special`: text such as <|im_end|> becomes a control token. `add_bos`: adds BOS if the model expects one. Never
  // adds EOS.
  std::vector<TokenId> tokenize(std::string_view text, bool add_bos, bool special) const;
  std::string piece(TokenId token, bool special = false) const;  // bytes; may end inside a UTF-8 character
  // The inverse of tokenize: the pieces in a row without the leading space that some vocabularies add.
  std::string detokenize(std::span<const TokenId> tokens, bool special = false) const;
  TokenId bos() const;               // -1: none
  TokenId eos() const;               // -1: none
  bool is_end(TokenId token) const;  // end of generation: eos, eot, ...
  bool is_control(TokenId token) const;

  // Applies the model's chat template, or `override`: a name from chat_templates() or a template's text. Throws Error
  // if there is none or libllama does not support it.
  std::string apply_chat_template(const std::vector<ChatMessage>& messages, bool add_assistant,
                                  const std::string& override = {}) const;
  bool has_chat_template() const;
  // For grammars. Built at the first call; thread-safe.
  std::shared_ptr<const TokenTexts> token_texts() const;

 private:
  Vocabulary();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::vector<std::string> chat_templates();  // names of libllama's built-in templates

}  // namespace palimpsest
