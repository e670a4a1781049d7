// `palimpsest eval ...`: one file each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/eval/plain_text.h"
#include "palimpsest/model/model.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::cli {

void add_eval_perplexity(CLI::App& eval, Action& action);
void add_eval_stream(CLI::App& eval, Action& action);
void add_eval_compare(CLI::App& eval, Action& action);

// A text to read, as tokens of a model.
struct TextFlags {
  std::string file;
  bool gutenberg = false;
  long long tokens = -1;
};
void add_text_flags(CLI::App& command, TextFlags& flags);

struct TokenText {
  std::vector<TokenId> tokens;    // BOS first where the vocabulary wants one
  long long available = 0;        // before --tokens cut it
  std::size_t bytes = 0;          // of the whole text, cleaned
  std::vector<std::string> done;  // what was done to the file
};
TokenText read_tokens(const TextFlags& flags, const Vocabulary& vocabulary);

std::string model_name(const Model& model);  // general.name, else the file's name
nlohmann::json finite(double value);         // null for what JSON has no word for

}  // namespace palimpsest::cli
