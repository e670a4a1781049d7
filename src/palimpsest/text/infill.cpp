#include "palimpsest/text/infill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <llama.h>

#include "palimpsest/core/error.h"

namespace palimpsest {

std::vector<std::string> missing_infill_tokens(const Vocabulary& vocabulary) {
  const llama_vocab* const of = llama_model_get_vocab(vocabulary.model());
  std::vector<std::string> missing;
  if (llama_vocab_fim_pre(of) < 0) missing.emplace_back("prefix");
  if (llama_vocab_fim_suf(of) < 0) missing.emplace_back("suffix");
  if (llama_vocab_fim_mid(of) < 0) missing.emplace_back("middle");
  return missing;
}

std::vector<TokenId> infill_prompt(const Vocabulary& vocabulary, const InfillInput& input) {
  if (const auto missing = missing_infill_tokens(vocabulary); !missing.empty())
    fail("this model cannot fill in the middle of a text: its vocabulary has no token for: {}",
         fmt::join(missing, ", "));
  const llama_vocab* const of = llama_model_get_vocab(vocabulary.model());
  std::vector<TokenId> tokens;
  const auto add = [&](const std::string& text) {
    const auto more = vocabulary.tokenize(text, false, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  const auto add_file_name = [&](const std::string& name) {
    tokens.push_back(llama_vocab_fim_sep(of));
    add(name + "\n");
  };
  const bool separates = llama_vocab_fim_sep(of) >= 0;
  if (llama_vocab_get_add_bos(of) && vocabulary.bos() >= 0) tokens.push_back(vocabulary.bos());
  if (!input.files.empty() && llama_vocab_fim_rep(of) >= 0) {
    tokens.push_back(llama_vocab_fim_rep(of));
    add("project\n");
  }
  for (const auto& [name, text] : input.files) {
    if (separates)
      add_file_name(name);
    else
      add(fmt::format("\n\n--- {} ---\n\n", name));
    add(text);
  }
  if (!input.files.empty() && separates) add_file_name("file");
  tokens.push_back(llama_vocab_fim_pre(of));
  add(input.prefix);
  add(input.begun);
  tokens.push_back(llama_vocab_fim_suf(of));
  add(input.suffix);
  tokens.push_back(llama_vocab_fim_mid(of));
  return tokens;
}

}  // namespace palimpsest
