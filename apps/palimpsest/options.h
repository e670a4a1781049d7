// Flags that several subcommands share, so that they are spelled, checked and explained alike everywhere.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "palimpsest/engine/session.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/model/model.h"
#include "palimpsest/text/sampler.h"

namespace palimpsest::cli {

struct ModelFlags {
  std::string path;       // -m; empty: $PALIMPSEST_MODEL, else the model that came with the program
  std::string synthetic;  // random weights in a named shape instead
  ModelOptions options;
};
void add_model_flags(CLI::App& command, ModelFlags& flags);
// Of commands that need a vocabulary: help does not list --synthetic, and giving it is an error that says why.
void add_text_model_flags(CLI::App& command, ModelFlags& flags);
std::optional<std::string> known_model(const ModelFlags& flags);  // none: nobody named one, and none came along
std::string model_path(const ModelFlags& flags);                  // throws Error that says how to get a model
std::shared_ptr<Model> load_model(const ModelFlags& flags);

constexpr long long kMaxTokens = 1LL << 40;  // that any flag may ask for

// The method in one string, and flags that replace parts of it; the cache that carries it out.
struct CacheFlags {
  std::string method;  // empty: the command's default
  std::optional<std::string> policy, mechanism, positions, budget, sinks;
  std::string cache_type = "f16";                         // of keys and values
  std::optional<std::string> cache_type_k, cache_type_v;  // of keys, of values alone
  long long page_size = 64, chunk = kDefaultChunk;
};
void add_cache_flags(CLI::App& command, CacheFlags& flags, const std::string& default_method);
CacheTypes cache_types_of(const CacheFlags& flags);
Method method_of(const CacheFlags& flags, const std::string& default_method);
// Throws Error for sizes that make no sense.
SessionOptions session_options(const CacheFlags& flags, const std::string& default_method);
// The plan of such a session on the CPU's own path: to count bytes.
MethodPlan plan_of(const SessionOptions& options, const Hyperparameters& hyper);
// Throws Error also for a cache that this machine's memory cannot hold. `tokens`: how many will come at most; -1: no
// end. The vocabulary: of a model that has one, for methods that have it repeat the prompt.
SessionOptions session_options(const CacheFlags& flags, const std::string& default_method, const Hyperparameters& hyper,
                               const Vocabulary* vocabulary, long long tokens);

struct SamplingFlags {
  SamplerOptions options;
  std::optional<std::uint32_t> seed;
  std::string grammar_file;
};
void add_sampling_flags(CLI::App& command, SamplingFlags& flags);
SamplerOptions sampler_options(const SamplingFlags& flags);

void add_threads_flag(CLI::App& command, std::optional<long long>& threads);
// Throws Error unless 1..512. Not given: one per core, but one for a model so small that threads wait more than they
// work.
int threads_of(const std::optional<long long>& threads, const Hyperparameters& hyper);

// The same flag on every command that can answer in JSON.
void add_json_flag(CLI::App& command, bool& json);

}  // namespace palimpsest::cli
