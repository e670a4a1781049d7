// Flags shared by several subcommands.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "palimpsest/engine/sequence/session.h"
#include "palimpsest/engine/speculation/lossless_drafter.h"
#include "palimpsest/engine/speculation/model_drafter.h"
#include "palimpsest/engine/speculation/speculation.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/model/model.h"

namespace palimpsest::cli {

inline constexpr const char* kChatTemplateHelp = "chat template: chatml, llama3, gemma, ..., or a file in Jinja";

struct ModelFlags {
  std::string path;       // -m: a file or a name (hub/names.h); empty: $PALIMPSEST_MODEL, else the default model
  std::string hub;        // -hf: USER/REPO[:QUANT], pulled if it is not there
  std::string synthetic;  // name of a shape: random weights instead of a file
  ModelOptions options;
  std::string tensor_split;  // "3,1"; empty: by free memory
};
void add_model_flags(CLI::App& command, ModelFlags& flags);
// For commands that need a vocabulary: --synthetic is hidden in --help and refused with an explanation.
void add_text_model_flags(CLI::App& command, ModelFlags& flags);
// "chat MODEL" for "chat -m MODEL".
void add_model_argument(CLI::App& command, ModelFlags& flags);
bool names_model(const ModelFlags& flags);  // by a flag or $PALIMPSEST_MODEL
// The file. none: not given, and there is no default model. Throws Error for a name without a model.
std::optional<std::string> known_model(const ModelFlags& flags);
bool on_host(const ModelFlags& flags);            // on the CPU's fast path
std::string model_path(const ModelFlags& flags);  // throws Error that says how to get a model
std::shared_ptr<Model> load_model(const ModelFlags& flags);

constexpr long long kMaxTokens = 1LL << 40;            // limit of token counts in flags
inline constexpr const char* kDefaultMethod = "auto";  // of run, chat and serve

// The method as one string, flags that replace parts of it, and cache flags.
struct CacheFlags {
  std::string method;  // empty: the command's default
  std::optional<std::string> policy, mechanism, positions, budget, sinks;
  std::optional<std::string> cache_type;                  // of keys and values; "auto": choose_cache_type
  std::optional<std::string> cache_type_k, cache_type_v;  // replace it for keys or values
  long long page_size = 64, chunk = kDefaultChunk;
  std::optional<bool> layerwise;         // --prefill-layerwise; without it: false, and in run: layerwise_saves()
  bool on_host = true;                   // the model runs on the CPU's fast path: set by run, chat and serve
  bool fits_machine = false;             // --cache-memory applies: of commands with one sequence
  std::optional<double> cache_mib = {};  // --cache-memory
  bool pin_prompt = false;
  std::string profile_file = {};         // SessionOptions::profile_file: set by the command
  std::vector<PositionRange> pins = {};  // set by the command, if pins_prompt()
  bool prompt_known = false;             // `pins` stands for pin=prompt
};
// --pin-prompt, or pin=prompt of the method.
bool pins_prompt(const CacheFlags& flags, const std::string& default_method);
// Pins the prompt: these positions.
void pin_prompt(CacheFlags& flags, const std::vector<PositionRange>& prompt);
void add_cache_flags(CLI::App& command, CacheFlags& flags, const std::string& default_method);
// For commands with concurrent requests: --prefill-layerwise is hidden in --help and refused with an explanation.
void hide_layerwise_flag(CLI::App& command);
// --cache-memory and --pin-prompt, of commands with one sequence. `pins`: help of --pin-prompt.
void add_session_cache_flags(CLI::App& command, CacheFlags& flags, const std::string& pins);
// One line: what method auto keeps, and when it begins to evict. Other methods: "".
std::string auto_line(const MethodPlan& plan);
CacheTypes cache_types_of(const CacheFlags& flags);  // "auto" is f16
// With --cache-type auto, which is method auto's default: what fits options.auto_memory
// (engine/sequence/session_options.h).
void choose_cache_type(const CacheFlags& flags, const Hyperparameters& hyper, SessionOptions& options);
Method method_of(const CacheFlags& flags, const std::string& default_method);
// One line, if a method with positions in the cache keeps more tokens than the model was trained on; else "".
std::string beyond_context(const Method& method, const Hyperparameters& hyper);
// Throws Error for invalid sizes.
SessionOptions session_options(const CacheFlags& flags, const std::string& default_method);
// The plan of such a session on the CPU's fast path, to compute its bytes.
MethodPlan plan_of(const SessionOptions& options, const Hyperparameters& hyper);
// Throws Error also for a cache larger than this machine's memory. `tokens`: max number of tokens; -1: unbounded.
// `vocabulary`: for methods that repeat the prompt; may be nullptr.
SessionOptions session_options(const CacheFlags& flags, const std::string& default_method, const Hyperparameters& hyper,
                               const Vocabulary* vocabulary, long long tokens);

// Speculative decoding.
struct DraftFlags {
  bool lookup = false;
  std::string model, method = "streaming";  // of the draft model
  float min_probability = ModelDrafter::kMinProbability;
  DraftOptions options;
  std::string price = "auto";
};
void add_draft_flags(CLI::App& command, DraftFlags& flags);
void add_draft_price_flag(CLI::App& command, std::string& price, const char* group);
// DraftOptions::price; nullopt: measured. Throws Error for an invalid number.
std::optional<double> draft_price_of(const std::string& price);
// SessionOptions::draft_max; 0: no drafts. Throws Error for invalid numbers, and for a lossless method with another
// drafter.
int draft_max_of(const DraftFlags& flags, const Method& method);
// nullopt: no drafts. Throws Error, also for a draft model with another vocabulary.
std::optional<Speculation> speculation_of(const DraftFlags& flags, const Vocabulary& vocabulary, Decoder& decoder);

// The sessions of one text: the one that writes it, and what drafts for it.
struct TextSession {
  std::unique_ptr<Session> session;        // of method full, if the method is lossless
  std::optional<Speculation> speculation;  // nullopt: no drafts
  const LosslessDrafter* small = nullptr;  // in `speculation`, if the method is lossless
};
// `options.draft_max`: draft_max_of(). Throws Error.
TextSession text_session(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options,
                         const DraftFlags& flags, const Vocabulary& vocabulary);

struct ThreadFlags {
  std::optional<long long> all, batch;
};
void add_thread_flags(CLI::App& command, ThreadFlags& flags);
// Throws Error unless 1..512. Default: default_threads().
StepThreads threads_of(const ThreadFlags& flags, const Hyperparameters& hyper);

// The --json flag of all commands with JSON output.
void add_json_flag(CLI::App& command, bool& json);

}  // namespace palimpsest::cli
