// What the chat library uses of the rest of `common`, which is about contexts, samplers and command lines, and needs
// functions that libllama does not export. The log is off: problems are reported by exceptions.
#include <stdexcept>

#include "common.h"
#include "log.h"
#include "sampling.h"

std::string string_join(const std::vector<std::string>& values, const std::string& separator) {
  std::string out;
  for (std::size_t i = 0; i < values.size(); ++i) out += (i == 0 ? std::string() : separator) + values[i];
  return out;
}

std::vector<std::string> string_split(const std::string& text, const std::string& separator) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = text.find(separator, begin)) != std::string::npos; begin = end + separator.size())
    out.push_back(text.substr(begin, end - begin));
  out.push_back(text.substr(begin));
  return out;
}

std::string string_repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

void string_replace_all(std::string& text, const std::string& old, const std::string& replacement) {
  if (old.empty()) return;
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += replacement.size())
    text.replace(at, old.size(), replacement);
}

std::vector<llama_token> common_tokenize(const llama_vocab* vocab, const std::string& text, bool add_special,
                                         bool parse_special) {
  const auto size = static_cast<std::int32_t>(text.size());
  std::vector<llama_token> tokens(text.size() + 2);
  const std::int32_t count = llama_tokenize(vocab, text.data(), size, tokens.data(),
                                            static_cast<std::int32_t>(tokens.size()), add_special, parse_special);
  if (count < 0) throw std::runtime_error("a text cannot be tokenized");
  tokens.resize(static_cast<std::size_t>(count));
  return tokens;
}

std::string common_token_to_piece(const llama_vocab* vocab, llama_token token, bool special) {
  std::string piece(64, '\0');
  const auto read = [&] {
    return llama_token_to_piece(vocab, token, piece.data(), static_cast<std::int32_t>(piece.size()), 0, special);
  };
  std::int32_t size = read();
  if (size < 0) {
    piece.resize(static_cast<std::size_t>(-size));
    size = read();
  }
  piece.resize(static_cast<std::size_t>(size));
  return piece;
}

int common_log_get_verbosity_thold() {
  return -1;
}
common_log* common_log_main() {
  return nullptr;
}
void common_log_add(common_log*, ggml_log_level, const char*, ...) {}

// Of sessions with a vocabulary only, which Palimpsest does not use.
void common_sampling_add_preserved_tokens(common_params_sampling&, const llama_vocab*,
                                          const std::vector<std::string>&) {
  throw std::logic_error("not part of this library");
}
void common_sampling_add_grammar_triggers(common_params_sampling&, const llama_vocab*,
                                          std::vector<common_grammar_trigger>) {
  throw std::logic_error("not part of this library");
}
