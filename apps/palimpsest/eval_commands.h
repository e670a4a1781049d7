// Subcommands of `palimpsest eval`, one file each.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "palimpsest/commands.h"
#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/eval/plain_text.h"
#include "palimpsest/model/model.h"
#include "palimpsest/text/vocabulary.h"

namespace palimpsest::cli {

void add_eval_perplexity(CLI::App& eval, Action& action);
void add_eval_stream(CLI::App& eval, Action& action);
void add_eval_compare(CLI::App& eval, Action& action);
void add_eval_needle(CLI::App& eval, Action& action);
void add_eval_ruler(CLI::App& eval, Action& action);
void add_eval_checked(CLI::App& eval, Action& action);
void add_eval_retention(CLI::App& eval, Action& action);
void add_eval_longbench(CLI::App& eval, Action& action);
void add_eval_likelihood(CLI::App& eval, Action& action);

// Flags of commands that read text files.
struct TextFlags {
  std::vector<std::string> files;  // a folder is replaced by its .txt files, sorted by name
  bool gutenberg = false;
  long long tokens = -1;
};
void add_text_flags(CLI::App& command, TextFlags& flags);

struct TokenText {
  std::string file;
  std::vector<TokenId> tokens;    // BOS first if the vocabulary adds one
  long long available = 0;        // number of tokens before truncation by --tokens
  std::size_t bytes = 0;          // of the whole text, cleaned
  std::vector<std::string> done;  // changes to the file: PlainText::done
};
std::vector<std::string> text_files(const std::vector<std::string>& named);                // expands folders
std::vector<TokenText> read_tokens(const TextFlags& flags, const Vocabulary& vocabulary);  // one or more

// Cache use of a method, in the same format for all evaluations.
struct CacheUse {
  CacheUse(const std::string& name, const SessionOptions& options);
  void add(const Cache& cache, long long evicted);  // call after each text: max of cache bytes, sum of evictions
  void set_files(const Decoder& decoder, const SessionOptions& options);  // fit/method_files.h

  std::string name, method;  // as the user wrote it; with all options
  std::string protection;    // "4 sinks and the newest 32"
  int budget, sinks, recent;
  std::string cache_type;
  std::size_t cache_bytes = 0, cache_bytes_peak = 0;  // pages and tables
  long long evicted = 0;
  std::vector<std::string> files;  // paths of the files beside the model that it reads
};
nlohmann::json as_json(const CacheUse& cache_use);
std::string cache_use_text(const CacheUse& cache_use);  // "cache 1.5 MiB, 4 sinks protected, 1,200 evicted"
// Warns on standard error if a method with a budget evicted nothing, so that it was not tested.
void warn_of_nothing_evicted(const CacheUse& cache_use);

std::string model_name(const Model& model);  // general.name, else the file's name
nlohmann::json finite(double value);         // null for NaN and infinities

}  // namespace palimpsest::cli
