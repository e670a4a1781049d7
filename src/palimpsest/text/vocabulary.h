// Tokens and text, by libllama loaded vocabulary-only.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/types.h"

struct llama_vocab;

namespace palimpsest {

struct ChatMessage {
  std::string role, content;  // "system", "user", "assistant"
};

class Vocabulary {
 public:
  static std::shared_ptr<Vocabulary> load(const std::string& gguf_path);  // throws Error
  ~Vocabulary();

  int size() const;
  // `special`: text such as <|im_end|> becomes its control token. `add_bos`: where the model wants one.
  std::vector<TokenId> tokenize(std::string_view text, bool add_bos, bool special) const;
  std::string piece(TokenId token, bool special = false) const;  // bytes; may end inside a UTF-8 character
  std::string detokenize(const std::vector<TokenId>& tokens, bool special = false) const;
  TokenId bos() const;  // -1: none
  TokenId eos() const;
  bool is_end(TokenId token) const;  // end of generation: eos, eot, ...
  bool has_chat_template() const;
  std::string apply_chat_template(const std::vector<ChatMessage>& messages, bool add_assistant) const;
  const llama_vocab* handle() const;  // for samplers with grammars

 private:
  Vocabulary();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
