// Tokenization with libllama, loaded vocabulary-only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "palimpsest/core/gguf_override.h"
#include "palimpsest/core/types.h"
#include "palimpsest/text/token_texts.h"

struct llama_model;
struct llama_sampler;

namespace palimpsest {

struct SamplerOptions;

class Vocabulary {
 public:
  // `overrides`: of the file's metadata. Throws Error.
  static std::shared_ptr<Vocabulary> load(const std::string& gguf_path, std::span<const GgufOverride> overrides = {});
  ~Vocabulary();

  int size() const;
  std::string kind() const;  // "SPM", "BPE", ...
  // `special`: text such as <|im_end|> becomes a control token. `add_bos`: adds BOS if the model expects one. Never
  // adds EOS.
  std::vector<TokenId> tokenize(std::string_view text, bool add_bos, bool special) const;
  // As with `special`, but no control token crosses an offset in `breaks` (ascending): a control token's text with a
  // break inside is plain text.
  std::vector<TokenId> tokenize_with_breaks(std::string_view text, bool add_bos,
                                            std::span<const std::size_t> breaks) const;
  // The texts that become tokens only with `special`.
  std::vector<std::string> control_texts() const;
  std::string piece(TokenId token, bool special = false) const;  // bytes; may end inside a UTF-8 character
  // The inverse of tokenize: the pieces in a row without the leading space that some vocabularies add.
  std::string detokenize(std::span<const TokenId> tokens, bool special = false) const;
  TokenId bos() const;               // -1: none
  TokenId eos() const;               // -1: none
  bool is_end(TokenId token) const;  // end of generation: eos, eot, ...
  bool is_control(TokenId token) const;

  std::optional<std::string> metadata(const char* key) const;  // a value as text, of the overrides or the file
  int trained_context() const;                                 // 0: unknown
  bool has_chat_template() const;
  std::string chat_template() const;  // "": none
  // For grammars. `control`: control tokens that have their text. Built at the first call, and kept for the last few
  // `control`; thread-safe.
  std::shared_ptr<const TokenTexts> token_texts(const std::vector<TokenId>& control = {}) const;
  // A DRY sampler of these options, to be cloned; built at the first call; thread-safe.
  std::shared_ptr<const llama_sampler> dry_sampler(const SamplerOptions& options) const;
  const std::string& path() const;   // of the file
  const llama_model* model() const;  // vocabulary only

 private:
  Vocabulary();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest
