#include "palimpsest/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <vector>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/core/memory.h"
#include "palimpsest/core/parse.h"
#include "palimpsest/default_model.h"
#include "palimpsest/engine/sequence/repeat.h"
#include "palimpsest/evict/method_plan.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/models.h"
#include "palimpsest/progress.h"
#include "palimpsest/pulling.h"
#include "palimpsest/rope_flags.h"
#include "palimpsest/scheduler_flags.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

constexpr long long kMaxThreads = 512;  // ggml's limit
constexpr long long kMaxChunk = 1 << 16, kMaxPage = 1 << 16;

void whole(long long value, long long min, long long max, const char* flag) {
  if (value < min || value > max) fail("{} {}: give a number from {} to {}", flag, value, min, max);
}

LoraAdapter scaled_adapter(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) fail("--lora-scaled {}: give FILE:SCALE", text);
  return {text.substr(0, colon), static_cast<float>(parse_real(text.substr(colon + 1), "--lora-scaled", -1e6, 1e6))};
}

std::vector<double> parse_split(const std::string& text) {
  std::vector<double> out;
  for (std::size_t first = 0; !text.empty() && first <= text.size();) {
    const std::size_t end = std::min(text.find(',', first), text.size());
    out.push_back(parse_real(std::string_view(text).substr(first, end - first), "--tensor-split", 0, 1e12));
    first = end + 1;
  }
  return out;
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  const char* group = "Model";
  command.add_option("-m,--model", flags.path, "model file (GGUF), or name of a pulled model (`palimpsest list`)")
      ->type_name("FILE|NAME")
      ->default_str("$PALIMPSEST_MODEL, else the included default model")
      ->group(group);
  command
      .add_option("--synthetic", flags.synthetic,
                  "random weights in the shape of a named model (llama-3.2-1b, llama-3.2-1b@layers=4@type=q4_0), for "
                  "speed measurements only")
      ->type_name("SHAPE")
      ->excludes("--model")
      ->group(group);
  command
      .add_option("--hf-repo", flags.hub,
                  "model of Hugging Face, pulled if it is not on this machine (see `palimpsest pull`)")
      ->type_name("USER/REPO:QUANT")
      ->excludes("--model")
      ->excludes("--synthetic")
      ->group(group);
  command
      .add_option("--device", flags.options.device,
                  "devices that run the model (see `info --devices`): with several, each has a range of layers")
      ->type_name("NAME,...")
      ->default_str("cpu; with --rpc, the servers' devices")
      ->group(group);
  command
      .add_option("--tensor-split", flags.tensor_split,
                  "with several devices: the share of the weights for each, as in 3,1")
      ->type_name("A,B,...")
      ->default_str("by free memory")
      ->group(group);
  command
      .add_option(
          "--rpc", flags.options.rpc,
          "HOST:PORT,...: servers (`palimpsest rpc-server`) on other machines, whose devices are RPC0, RPC1, ...")
      ->type_name("SERVERS")
      ->group(group);
  command
      .add_flag("--portable", flags.options.portable,
                "use stock ggml operators for attention on the CPU too (other devices always do)")
      ->group(group);
  command
      .add_flag("!--no-repack", flags.options.repack,
                "do not repack quantised weights: slower, without a copy in memory")
      ->group(group);
  command
      .add_option("-c,--ctx-size", flags.options.context,
                  "context length in tokens: selects Phi 3's short or long rotary factors; allocates nothing")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->default_str("the trained context")
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--lora",
          [&flags](const std::vector<std::string>& given) {
            for (const std::string& path : given) flags.options.lora.push_back({path, 1});
          },
          "LoRA adapter (GGUF), merged into the weights when the model is loaded; may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--lora-scaled",
          [&flags](const std::vector<std::string>& given) {
            for (const std::string& text : given) flags.options.lora.push_back(scaled_adapter(text));
          },
          "the same with a factor")
      ->type_name("FILE:SCALE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  command
      .add_option_function<std::vector<std::string>>(
          "--override-kv",
          [&flags](const std::vector<std::string>& given) {
            for (const std::string& text : given) flags.options.overrides.push_back(parse_override(text));
          },
          "metadata instead of the file's, as in tokenizer.ggml.add_bos_token=bool:false; may be repeated")
      ->type_name("KEY=TYPE:VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  add_rope_flags(command, flags.options.rope);
}

void add_text_model_flags(CLI::App& command, ModelFlags& flags) {
  add_model_flags(command, flags);
  command.get_option("--synthetic")->group("");
}

namespace {

std::string model_in_environment() {
  const char* named = std::getenv("PALIMPSEST_MODEL");
  return named == nullptr ? "" : named;
}

}  // namespace

void add_model_argument(CLI::App& command, ModelFlags& flags) {
  command.add_option("MODEL", flags.path, "model, as of -m")
      ->type_name("MODEL")
      ->excludes("--model")
      ->excludes("--hf-repo")
      ->excludes("--synthetic");
}

bool names_model(const ModelFlags& flags) {
  return !flags.path.empty() || !flags.hub.empty() || !flags.synthetic.empty() || !model_in_environment().empty();
}

std::optional<std::string> known_model(const ModelFlags& flags) {
  if (!flags.hub.empty()) return hub_model_path(flags.hub);
  if (!flags.path.empty()) return resolve_model(flags.path);
  if (const std::string named = model_in_environment(); !named.empty()) return resolve_model(named);
  if (const auto built_in = default_model()) return built_in->string();
  return std::nullopt;
}

bool on_host(const ModelFlags& flags) {
  return !flags.options.portable && flags.options.rpc.empty() &&
         (flags.options.device.empty() || flags.options.device == "cpu");
}

std::string model_path(const ModelFlags& flags) {
  if (const auto known = known_model(flags)) return *known;
  fail(
      "no model given and the default model '{}' is not installed: name a GGUF file or a pulled model with -m or "
      "$PALIMPSEST_MODEL (`palimpsest pull {}` fetches one)",
      kDefaultModel, kFirstModel);
}

std::shared_ptr<Model> load_model(const ModelFlags& flags) {
  ModelOptions options = flags.options;
  options.tensor_split = parse_split(flags.tensor_split);
  const auto progress = std::make_shared<Progress>("loading", "MiB");
  options.progress = [progress](std::size_t done, std::size_t total) {
    progress->update(static_cast<long long>(done >> 20), static_cast<long long>(total >> 20));
    if (done == total) progress->clear();
  };
  if (!flags.synthetic.empty()) return Model::synthetic(flags.synthetic, options);
  return Model::load(model_path(flags), options);
}

void add_cache_flags(CLI::App& command, CacheFlags& flags, const std::string& default_method) {
  const char* group = "Cache";
  const auto part = [&](const char* name, std::optional<std::string>& value, const char* type, const char* what) {
    command.add_option(name, value, what)->type_name(type)->default_str("the method's")->group(group);
  };
  command
      .add_option("--method", flags.method, "eviction method: NAME or NAME:key=value,... (see `palimpsest methods`)")
      ->type_name("METHOD")
      ->default_str(default_method)
      ->group(group);
  part("--policy", flags.policy, "NAME", "eviction policy, instead of the method's");
  part("--mechanism", flags.mechanism, "HOW",
       "in-place: new tokens reuse evicted slots; shift: kept tokens move; block: evicts pages; gather, append, merge, "
       "match");
  part("--positions", flags.positions, "WHICH",
       "original: position in the text; cache: rank among the kept tokens; auto: original while the text fits the "
       "trained "
       "context, then cache");
  part("--budget", flags.budget, "TOKENS|256MiB",
       "max tokens that a query attends to, the new one included, or their bytes (method full keeps all)");
  part("--sinks", flags.sinks, "TOKENS|0.1", "first tokens, never evicted; 0.1: a share of the budget");
  command
      .add_option(
          "--cache-type", flags.cache_type,
          "type of cached keys and values: f32, f16, bf16, q8_0, q4_0, q4, q3 or q2; auto: f16, or fewer bits if "
          "memory is short")
      ->type_name("TYPE")
      ->default_str(default_method == kDefaultMethod ? "auto with method auto, else f16" : "f16")
      ->group(group);
  const auto type_of = [&](const char* name, std::optional<std::string>& value, const char* what) {
    command.add_option(name, value, what)->type_name("TYPE")->default_str("--cache-type")->group(group);
  };
  type_of("--cache-type-k", flags.cache_type_k, "type of cached keys");
  type_of("--cache-type-v", flags.cache_type_v, "type of cached values");
  command.add_option("--page-size", flags.page_size, "slots per cache page, a multiple of 16")
      ->type_name("SLOTS")
      ->default_str("64")
      ->group(group);
  command.add_option("--prefill-chunk,--chunk", flags.chunk, "tokens per prefill chunk")
      ->type_name("TOKENS")
      ->default_str("512")
      ->group(group);
  command
      .add_flag("--prefill-layerwise", flags.layerwise,
                "read a prompt layer by layer, compressing each layer's cache before the next: less memory, the same "
                "result; one sequence, schedule=prompt or prompt+step; the default of run where it takes less memory; "
                "=false: whole prompts")
      ->group(group);
}

void hide_layerwise_flag(CLI::App& command) {
  command.get_option("--prefill-layerwise")->group("");
}

void add_session_cache_flags(CLI::App& command, CacheFlags& flags, const std::string& pins) {
  flags.fits_machine = true;
  command.add_option("--cache-memory", flags.cache_mib, "max memory of the cache; method auto keeps what fits")
      ->type_name("MIB")
      ->default_str("auto: half of the free memory; others: the machine's")
      ->group("Cache");
  command.add_flag("--pin-prompt", flags.pin_prompt, pins)->group("Cache");
}

CacheTypes cache_types_of(const CacheFlags& flags) {
  CacheTypes out = CacheType::kF16;
  if (flags.cache_type != "auto")
    out = parse_cache_type(flags.cache_type.value_or("f16"), "cache type");
  else if (flags.cache_type_k || flags.cache_type_v)
    fail("--cache-type auto chooses one type: leave out --cache-type-k and --cache-type-v");
  if (flags.cache_type_k) out.key = parse_cache_type(*flags.cache_type_k, "cache type of keys");
  if (flags.cache_type_v) out.value = parse_cache_type(*flags.cache_type_v, "cache type of values");
  return out;
}

void choose_cache_type(const CacheFlags& flags, const Hyperparameters& hyper, SessionOptions& options) {
  const bool by_default = !flags.cache_type && !flags.cache_type_k && !flags.cache_type_v &&
                          options.method.name == kAutoMethod && flags.on_host;
  if (flags.cache_type == "auto" || by_default) options.cache_type = fitting_cache_type(hyper, options);
}

bool pins_prompt(const CacheFlags& flags, const std::string& default_method) {
  return flags.pin_prompt || method_of(flags, default_method).protection.prompt;
}

void pin_prompt(CacheFlags& flags, const std::vector<PositionRange>& prompt) {
  flags.pins = prompt;
  flags.prompt_known = true;
}

Method method_of(const CacheFlags& flags, const std::string& default_method) {
  Method method = parse_method(flags.method.empty() ? default_method : flags.method);
  const auto replace = [&](const char* key, const std::optional<std::string>& value) {
    if (value) set_option(method, key, *value);
  };
  replace("policy", flags.policy);
  replace("mechanism", flags.mechanism);
  replace("positions", flags.positions);
  if (method.policy != "none") replace("budget", flags.budget);
  if (method.policy != "none") replace("sinks", flags.sinks);
  if (flags.prompt_known) method.protection.prompt = false;
  add_pins(method, flags.pins);
  validate(method);
  return method;
}

MethodPlan plan_of(const SessionOptions& options, const Hyperparameters& hyper) {
  return {options.method, plan_target(hyper, options)};
}

std::string beyond_context(const Method& method, const Hyperparameters& hyper) {
  const int trained = hyper.trained_context;
  if (trained <= 0 || method.positions == Positions::kOriginal || !method.evicts() || method.budget <= trained)
    return "";
  return fmt::format("budget {} exceeds the model's trained context of {}: use budget=auto, or at most {}",
                     method.budget, trained, trained);
}

std::string auto_line(const MethodPlan& plan) {
  const Method& m = plan.method();
  if (m.name != kAutoMethod) return "";
  const PlanTarget& target = plan.target();
  const LayerGeometry& layer = target.shape.geometry.layer(0);
  const CacheTypes types = {layer.key_type, layer.value_type};
  const std::size_t pages = decode_bytes(plan).pages;
  const std::string limits = fmt::format(
      "{}{}keys and values {}, tables {} of {}",
      target.trained_context > 0 ? fmt::format("trained context {}; ", thousands(target.trained_context)) : "",
      types == CacheTypes(CacheType::kF16) ? "" : fmt::format("{}; ", name_of(types)), human_bytes(pages),
      human_bytes(cache_bytes(plan) - pages), target.memory == 0 ? "the machine's memory" : human_bytes(target.memory));
  const std::string whole =
      m.prompt_max > m.budget ? fmt::format("; of a prompt {} are read first", thousands(m.prompt_max)) : "";
  return fmt::format("auto keeps all of the first {} tokens ({}), then evicts by {}{}; protected: {}",
                     thousands(m.budget), limits, m.policy == "recent" ? "age" : m.policy, whole, spell_protection(m));
}

SessionOptions session_options(const CacheFlags& flags, const std::string& default_method) {
  SessionOptions out;
  out.method = method_of(flags, default_method);
  out.cache_type = cache_types_of(flags);
  whole(flags.chunk, 1, kMaxChunk, "--prefill-chunk");
  whole(flags.page_size, 16, kMaxPage, "--page-size");
  out.chunk = static_cast<int>(flags.chunk);
  out.layerwise = flags.layerwise.value_or(false);
  out.profile_file = flags.profile_file;
  out.page_size = static_cast<int>(flags.page_size);
  check_page_size(out.page_size, "--page-size");
  out.memory_limit = memory_bytes();
  out.beside_full = flags.fits_machine && out.method.lossless;
  if (flags.fits_machine) out.auto_memory = std::min(out.memory_limit, available_bytes() / 2);
  if (flags.cache_mib) out.memory_limit = out.auto_memory = mib_to_bytes(*flags.cache_mib, "--cache-memory");
  return out;
}

SessionOptions session_options(const CacheFlags& flags, const std::string& default_method, const Hyperparameters& hyper,
                               const Vocabulary* vocabulary, long long tokens) {
  SessionOptions out = session_options(flags, default_method);
  choose_cache_type(flags, hyper, out);
  if (vocabulary != nullptr) out.repeat = repeat_instruction(*vocabulary);
  const bool bounded = out.method.bounded() && !out.method.lossless;
  if (tokens < 0 && !bounded) return out;  // unbounded: fails when the memory limit is reached

  // The max cache size is known in advance: refuse it now if it exceeds this machine's memory, even if the budget may
  // not be reached.
  const long long prompt = tokens < 0 ? kMaxTokens : std::min(tokens, kMaxTokens);  // all of it may be prompt
  const MethodPlan plan = plan_of(out, hyper);
  out.method = plan.method();
  auto need = static_cast<double>(plan.bytes(prompt, bounded ? -1 : prompt).total());
  if (out.method.lossless)
    need += static_cast<double>(plan_of(full_beside(out, 1), hyper).bytes(prompt, prompt).total());
  if (need > static_cast<double>(out.memory_limit))
    fail("a cache of {} tokens needs {} and {} {}: {}",
         std::ranges::max(plan.occupancies(prompt, bounded ? -1 : prompt).prefill, {}, &Occupancy::tokens).tokens,
         human_bytes(static_cast<std::size_t>(need)), flags.cache_mib ? "--cache-memory is" : "this machine has",
         human_bytes(out.memory_limit),
         bounded ? "choose a smaller --budget" : "give a --budget, or request fewer tokens");
  if (const std::string what = beyond_context(out.method, hyper); !what.empty())
    fmt::print(stderr, "palimpsest: {}\n", what);
  return out;
}

void add_draft_flags(CLI::App& command, DraftFlags& flags) {
  const char* group = "Drafts (speculative decoding: the same text, to the bit)";
  CLI::Option* lookup =
      command.add_flag("--lookup", flags.lookup, "draft what followed the last tokens earlier in the text")
          ->group(group);
  command.add_option("--draft-model", flags.model, "draft with a smaller model of the same vocabulary")
      ->type_name("FILE|NAME")
      ->excludes(lookup)
      ->group(group);
  command.add_option("--draft-method", flags.method, "eviction method of the draft model's cache")
      ->type_name("METHOD")
      ->group(group)
      ->capture_default_str();
  command.add_option("--draft-p-min", flags.min_probability, "min probability of the draft model's drafts")
      ->type_name("P")
      ->group(group)
      ->capture_default_str();
  command.add_option("--draft-max", flags.options.max, "max drafts in a step")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
  add_draft_price_flag(command, flags.price, group);
  command.add_option("--draft-min", flags.options.min, "min drafts in a step; fewer are not read")
      ->type_name("N")
      ->group(group)
      ->capture_default_str();
}

void add_draft_price_flag(CLI::App& command, std::string& price, const char* group) {
  command
      .add_option("--draft-price", price,
                  "time of a draft, in steps of one token, by which the number of drafts adapts; auto: measured")
      ->type_name("P")
      ->group(group)
      ->capture_default_str();
}

std::optional<double> draft_price_of(const std::string& price) {
  if (price == "auto") return std::nullopt;
  return parse_real(price, "--draft-price", 0, 1000);
}

int draft_max_of(const DraftFlags& flags, const Method& method) {
  static_cast<void>(draft_price_of(flags.price));
  whole(flags.options.max, 1, kMaxDrafts, "--draft-max");
  whole(flags.options.min, 0, flags.options.max, "--draft-min");
  if (!(flags.min_probability >= 0 && flags.min_probability <= 1))
    fail("--draft-p-min {}: give a probability from 0 to 1", flags.min_probability);
  const bool drafts = flags.lookup || !flags.model.empty();
  if (method.lossless && drafts)
    fail("lossless=true drafts with the method's own cache: leave out {}", flags.lookup ? "--lookup" : "--draft-model");
  return drafts || method.lossless ? flags.options.max : 0;
}

std::optional<Speculation> speculation_of(const DraftFlags& flags, const Vocabulary& vocabulary, Decoder& decoder) {
  if (!flags.lookup && flags.model.empty()) return std::nullopt;
  DraftOptions drafts = flags.options;
  drafts.price = draft_price_of(flags.price);
  DecoderSpeed speed;
  if (!drafts.price) speed = measure_decoder(decoder, drafts.max);
  if (flags.lookup) return std::make_optional<Speculation>(std::make_unique<LookupDrafter>(), drafts, speed.price);
  const std::string path = resolve_model(flags.model);
  const auto model = Model::load(path, {});
  check_same_vocabulary(vocabulary, *Vocabulary::load(path));
  SessionOptions options;
  options.method = parse_method(flags.method);
  validate(options.method);
  options.memory_limit = memory_bytes();
  auto drafter = std::make_shared<Decoder>(model, decoder.threads());
  if (!drafts.price) speed.price.add(measure_decoder(*drafter, 0).seconds / speed.seconds);
  return std::make_optional<Speculation>(
      std::make_unique<ModelDrafter>(std::move(drafter), options, flags.min_probability), drafts, speed.price);
}

TextSession text_session(const std::shared_ptr<Decoder>& decoder, const SessionOptions& options,
                         const DraftFlags& flags, const Vocabulary& vocabulary) {
  TextSession out;
  if (!options.method.lossless) {
    out.speculation = speculation_of(flags, vocabulary, *decoder);
    out.session = std::make_unique<Session>(decoder, options);
    return out;
  }
  out.session = std::make_unique<Session>(decoder, full_beside(options, options.draft_max));
  DraftOptions drafts = flags.options;
  drafts.price = draft_price_of(flags.price);
  drafts.timed = true;
  auto drafter = std::make_unique<LosslessDrafter>(*out.session, options, flags.min_probability);
  out.small = drafter.get();
  out.speculation.emplace(std::move(drafter), drafts);
  return out;
}

void add_thread_flags(CLI::App& command, ThreadFlags& flags) {
  command.add_option("-t,--threads", flags.all, "number of threads; the text does not depend on it")
      ->type_name("N")
      ->default_str(
          "one per core, fewer beside other programs; for a model below 8 MiB, 1 in steps of fewer than 8 tokens")
      ->group("Model");
  command.add_option("--threads-batch", flags.batch, "number of threads for prompts and steps of 8 tokens and more")
      ->type_name("N")
      ->default_str("--threads, else one per core")
      ->group("Model");
}

StepThreads threads_of(const ThreadFlags& flags, const Hyperparameters& hyper) {
  if (flags.all) whole(*flags.all, 1, kMaxThreads, "--threads");
  if (flags.batch) whole(*flags.batch, 1, kMaxThreads, "--threads-batch");
  StepThreads threads = flags.all ? StepThreads(static_cast<int>(*flags.all)) : default_threads(hyper);
  if (flags.batch) threads.batch = static_cast<int>(*flags.batch);
  return threads;
}

void add_json_flag(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON object instead of text")->group("Output");
}

}  // namespace palimpsest::cli
