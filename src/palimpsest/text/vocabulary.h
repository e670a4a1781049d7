// Tokens and text, by libllama loaded vocabulary-only.
#pragma once

#include <memory>
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
  // `special`: text such as <|im_end|> becomes its control token. `add_bos`: where the model wants one. Never an end.
  std::vector<TokenId> tokenize(std::string_view text, bool add_bos, bool special) const;
  std::string piece(TokenId token, bool special = false) const;  // bytes; may end inside a UTF-8 character
  // The inverse of tokenize: unlike the pieces in a row, without the space that some vocabularies put before a text.
  std::string detokenize(const std::vector<TokenId>& tokens, bool special = false) const;
  TokenId bos() const;               // -1: none
  TokenId eos() const;               // -1: none
  bool is_end(TokenId token) const;  // end of generation: eos, eot, ...
  bool is_control(TokenId token) const;

  // The model's own chat template, or `override`: a name that chat_templates() lists, or a template's text.
  // Throws Error if there is none, or none that libllama knows.
  std::string apply_chat_template(const std::vector<ChatMessage>& messages, bool add_assistant,
                                  const std::string& override = {}) const;
  bool has_chat_template() const;
  // For grammars: made when it is first asked for, from any thread.
  std::shared_ptr<const TokenTexts> token_texts() const;

 private:
  Vocabulary();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::vector<std::string> chat_templates();  // names of those that libllama has built in

}  // namespace palimpsest
