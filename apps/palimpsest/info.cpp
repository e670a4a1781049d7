// palimpsest info: contents of a model file and the size of its cache; supported devices and model families.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "palimpsest/commands.h"
#include "palimpsest/core/cache_type.h"
#include "palimpsest/core/error.h"
#include "palimpsest/fit/own_shares.h"
#include "palimpsest/info_cache.h"
#include "palimpsest/info_encoder.h"
#include "palimpsest/info_families.h"
#include "palimpsest/info_parts.h"
#include "palimpsest/matmul/panels.h"
#include "palimpsest/model/backend.h"
#include "palimpsest/model/encoder_file.h"
#include "palimpsest/model/rpc.h"
#include "palimpsest/model/weights.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kInfoFooter = R"(Examples:
  palimpsest info model.gguf
  palimpsest info model.gguf --budget 4096 --cache-type bf16
  palimpsest info model.gguf --cache --method streaming:budget=4096 --batch 8
  palimpsest info --devices
  palimpsest info --synthetic llama-3.2-1b@type=q4_0 --json)";

constexpr const char* kInfoMethod = "streaming";

struct InfoFlags {
  ModelFlags model;
  CacheFlags cache;
  std::optional<long long> tokens;
  long long batch = 1;
  bool devices = false, families = false, json = false, terms = false;
};

constexpr long long kMaxSequences = 1 << 20;

const char* name_of(RopeKind kind) {
  return kind == RopeKind::kNone ? "none" : kind == RopeKind::kPairs ? "pairs" : "halves";
}

const char* name_of(PositionKind kind) {
  switch (kind) {
    case PositionKind::kRotary:
      return "rotary";
    case PositionKind::kAlibi:
      return "ALiBi";
    case PositionKind::kLearned:
      return "learned";
    case PositionKind::kNone:
      break;
  }
  return "none";
}

Json rope_of(const RopeOptions& rope) {
  if (rope.is_unrotated()) return {{"kind", "none"}};
  Json out = {{"kind", name_of(rope.kind)}, {"dimensions", rope.dims}, {"base", rope.base}};
  if (rope.linear_scale != 1) out["linear_scale"] = rope.linear_scale;
  if (!rope.factors.empty()) out["factors"] = rope.factors.size();
  if (rope.yarn_ext_factor != 0) out["yarn_original_context"] = rope.original_context;
  return out;
}

// The devices that have layers, the first and the last layer of each; the output is on the last.
Json devices_of(const Model& model) {
  const Weights& w = model.weights();
  Json out = Json::array();
  for (int layer = 0; layer < model.hyper().layers; ++layer) {
    const std::string name =
        palimpsest::name_of(w.devices[static_cast<std::size_t>(w.device_of[static_cast<std::size_t>(layer)])]);
    if (out.empty() || out.back()["name"] != name) out.push_back({{"name", name}, {"layers", {layer, layer}}});
    out.back()["layers"][1] = layer;
  }
  return out;
}

Json describe(const InfoFlags& flags) {
  if (flags.batch < 1 || flags.batch > kMaxSequences)
    fail("--batch {}: give 1 to {} sequences", flags.batch, kMaxSequences);
  if (flags.tokens && (*flags.tokens < 1 || *flags.tokens > kMaxTokens))
    fail("--tokens {}: give 1 to {}", *flags.tokens, kMaxTokens);
  SessionOptions options = session_options(flags.cache, kInfoMethod);
  if (flags.terms && (!on_host(flags.model)))
    fail("--cache applies to the CPU's fast path: leave out --portable, --device and --rpc");
  ModelFlags model_flags = flags.model;
  model_flags.options.repack = false;  // nothing is computed here
  const auto model = load_model(model_flags);
  const Hyperparameters& h = model->hyper();
  if (h.positions() == PositionKind::kLearned)  // supports original positions only
    options = session_options(flags.cache, std::string(kInfoMethod) + ":positions=original");
  options.profile_file = kept_shares(*model, options);
  choose_cache_type(flags.cache, h, options);
  Json out;
  out["model"] = model->path().empty() ? h.name : model->path();
  out["name"] = h.name;
  out["architecture"] = h.architecture;
  out["parameters"] = h.parameters;
  out["weight_bytes"] = h.weight_bytes;
  out["layers"] = h.layers;
  out["width"] = h.width;
  // One number if all layers are equal, else a list with one per layer.
  const auto of_layers = [&](const auto& of) {
    Json list = Json::array();
    for (int i = 0; i < h.layers; ++i) list.push_back(of(i));
    return std::ranges::all_of(list, [&](const Json& each) { return each == list.front(); }) ? list.front() : list;
  };
  out["feed_forward"] = of_layers([&](int i) { return h.feed_forward[static_cast<std::size_t>(i)]; });
  out["query_heads"] = of_layers([&](int i) { return h.geometry.layer(i).query_heads; });
  out["kv_heads"] = of_layers([&](int i) { return h.geometry.layer(i).kv_heads; });
  out["head_dim"] = of_layers([&](int i) { return h.geometry.layer(i).key_width; });
  out["value_dim"] = of_layers([&](int i) { return h.geometry.layer(i).value_width; });
  out["trained_context"] = h.trained_context;
  out["positions"] = name_of(h.positions());
  out["rope"] = rope_of(h.rope);
  if (h.local_rope) out["local_rope"] = rope_of(*h.local_rope);
  if (h.geometry.windowed_layers() > 0) {
    out["window"] = h.geometry.min_window();
    out["layers_with_window"] = h.geometry.windowed_layers();
  }
  if (h.experts > 0) {
    out["experts"] = h.experts;
    out["experts_used"] = h.experts_used;
  }
  out["vocabulary"] = model->path().empty() ? Json(nullptr) : vocabulary_of(model->path(), model->options().overrides);
  out["tensors"] = tensors_of(model->weights().file);
  if (const Json list = devices_of(*model); list.size() > 1 || list[0]["name"] != "cpu") out["devices"] = list;
  const MethodPlan plan = plan_of(options, h);
  options.method = plan.method();
  const std::vector<std::size_t> page_bytes = page_bytes_of_heads(plan.cache());
  const auto page_size = static_cast<std::size_t>(plan.cache().page_size);
  const auto rows_of = [&](std::size_t head, long long tokens) {  // without the unused slots of last pages
    const std::vector<std::int32_t>& windows = plan.cache().windows;
    const long long held = windows.empty() ? tokens : std::min<long long>(tokens, windows[head]);
    return page_bytes[head] / page_size * static_cast<std::size_t>(held);
  };
  const auto rows = [&](long long tokens) {
    std::size_t sum = 0;
    for (std::size_t head = 0; head < static_cast<std::size_t>(h.geometry.heads()); ++head)
      sum += rows_of(head, tokens);
    return sum;
  };
  out["cache"] = {{"type", name_of(options.cache_type)},
                  {"bytes_per_token", rows(1)},
                  {"bytes_at_trained_context", rows(h.trained_context)}};
  if (options.method.bounded()) {
    out["cache"]["budget"] = options.method.budget;
    out["cache"]["bytes_at_budget"] = rows(options.method.budget);
    if (const std::vector<int>& budgets = plan.budgets(); !budgets.empty()) {
      std::size_t sum = 0;
      for (std::size_t head = 0; head < budgets.size(); ++head) sum += rows_of(head, budgets[head]);
      out["cache"]["bytes_at_budget"] = sum;
    }
  }
  if (flags.terms) out["cache"]["footprint"] = cache_terms(options, h, flags.tokens, flags.batch);
  return out;
}

void print(const Json& m) {
  const auto line = print_info;
  const auto number = [&](const char* key) { return m[key].get<long long>(); };
  const auto range = [&](const char* key) {  // "3 to 5" where layers differ
    if (!m[key].is_array()) return std::to_string(number(key));
    const auto [min, max] = std::ranges::minmax(m[key].get<std::vector<long long>>());
    return fmt::format("{} to {}", min, max);
  };
  const auto bytes = [](const Json& value) { return human_bytes(value.get<std::size_t>()); };
  line("model", m["model"]);
  if (m["name"] != m["model"] && !m["name"].get<std::string>().empty()) line("name", m["name"]);
  line("architecture", m["architecture"]);
  print_weights(m);
  line("shape",
       fmt::format("{} layers, width {}, feed-forward {}", number("layers"), number("width"), range("feed_forward")));
  line("attention", fmt::format("{} query heads, {} KV heads, head dimension {}", range("query_heads"),
                                range("kv_heads"), range("head_dim")));
  line("trained context", thousands(number("trained_context")));
  if (m.contains("devices"))
    for (const Json& each : m["devices"])
      line("device", fmt::format("{}: layers {} to {}", each["name"].get<std::string>(), each["layers"][0].get<int>(),
                                 each["layers"][1].get<int>()));
  const Json& rope = m["rope"];
  std::string rotary = rope["kind"] == "none"
                           ? "none"
                           : fmt::format("{}, {} dimensions, base {}", rope["kind"].get<std::string>(),
                                         rope["dimensions"].get<int>(), rope["base"].get<double>());
  if (rope.contains("linear_scale")) rotary += fmt::format(", linear {}", rope["linear_scale"].get<double>());
  if (rope.contains("factors")) rotary += ", one factor per frequency";
  if (rope.contains("yarn_original_context")) rotary += ", YaRN";
  if (m["positions"] == "rotary")
    line("positions", "rotary, by " + rotary);
  else
    line("positions", m["positions"].get<std::string>());
  if (m.contains("window"))
    line("windows", fmt::format("{} tokens in {} of {} layers", thousands(m["window"].get<long long>()),
                                number("layers_with_window"), number("layers")));
  if (m.contains("experts"))
    line("experts", fmt::format("{}, {} active per token", number("experts"), number("experts_used")));
  print_vocabulary(m["vocabulary"]);
  print_tensors(m["tensors"]);
  const Json& c = m["cache"];
  std::string cost = fmt::format("{} per token in {}; ", bytes(c["bytes_per_token"]), c["type"].get<std::string>());
  if (c.contains("budget"))
    cost +=
        fmt::format("{} for a budget of {}; ", bytes(c["bytes_at_budget"]), thousands(c["budget"].get<long long>()));
  line("keys and values", fmt::format("{}{} for the trained context of {}", cost, bytes(c["bytes_at_trained_context"]),
                                      thousands(number("trained_context"))));
  if (!c.contains("footprint")) return;
  fmt::print("\n");
  print_cache_terms(c["footprint"]);
}

// The types of weights, by the kernels that multiply them.
void print_products() {
  std::map<std::string, std::string> types;
  for (const ProductKernel& product : product_kernels()) {
    std::string& list = types[product.name];
    list += (list.empty() ? "" : ", ") + std::string(product.type);
  }
  for (const auto& [name, list] : types) fmt::print("{:10}  products of {}: {}\n", "", list, name);
  fmt::print("{:10}  products of {}: ggml's\n", "", types.empty() ? "all types" : "other types");
}

// What runs at full speed on a device, in one line.
const char* path_of(const DeviceInfo& device) {
  return device.cpu ? "fast path: all methods" : "portable path: stock ggml operators, no drafts";
}

int devices(const std::string& rpc, bool json) {
  Json out = Json::array();
  if (!rpc.empty()) add_rpc_servers(rpc);
  for (const DeviceInfo& each : list_devices()) {
    out.push_back({{"name", each.name},
                   {"description", each.description},
                   {"memory_free", each.memory_free},
                   {"memory_total", each.memory_total},
                   {"path", path_of(each)}});
    if (each.cpu) {
      out.back()["kernels"] = each.kernels;
      out.back()["products"] = Json::object();
      for (const ProductKernel& product : product_kernels()) out.back()["products"][product.type] = product.name;
    }
    if (json) continue;
    const std::string memory =
        each.memory_free == each.memory_total
            ? human_bytes(each.memory_total) + " of memory"
            : fmt::format("{} of {} of memory free", human_bytes(each.memory_free), human_bytes(each.memory_total));
    fmt::print("{:10}  {}  ({}{})\n", each.name, each.description, memory,
               each.cpu ? "; kernels: " + each.kernels : "");
    fmt::print("{:10}  {}\n", "", path_of(each));
    if (each.cpu) print_products();
  }
  if (json) fmt::print("{}\n", out.dump(2));
  return kOk;
}

int info(const InfoFlags& flags) {
  if (flags.devices) return devices(flags.model.options.rpc, flags.json);
  if (flags.families) return list_families(flags.json);
  bool encoder = false;
  Json out;
  if (const auto path = flags.model.synthetic.empty() ? known_model(flags.model) : std::nullopt) {
    GgufFile file = GgufFile::open(*path);
    for (const GgufOverride& given : flags.model.options.overrides) file.override_value(given);
    if (encoder = is_encoder(file); encoder) out = describe_encoder(file);
  }
  if (!encoder) out = describe(flags);
  if (flags.json)
    fmt::print("{}\n", out.dump(2));
  else
    (encoder ? print_encoder : print)(out);
  return kOk;
}

}  // namespace

void add_info(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("info", "Show a model's dimensions, tensors and cache size");
  command->footer(kInfoFooter);
  const auto flags = std::make_shared<InfoFlags>();
  add_model_flags(*command, flags->model);
  command->add_option("MODEL", flags->model.path, "same as -m")
      ->type_name("MODEL")
      ->excludes("--model")
      ->excludes("--synthetic");
  command->add_flag("--devices", flags->devices, "list the devices and exit")->group("Lists");
  command->add_flag("--families", flags->families, "list the supported architectures and exit")->group("Lists");
  add_cache_flags(*command, flags->cache, kInfoMethod);
  command->add_flag("--cache", flags->terms, "max cache size, part by part")->group("Cache");
  command->add_option("--tokens", flags->tokens, "for --cache: max sequence length in tokens, including the prompt")
      ->type_name("TOKENS")
      ->default_str("unlimited; the trained context for methods without eviction")
      ->group("Cache");
  command->add_option("--batch", flags->batch, "for --cache: number of sequences")
      ->type_name("N")
      ->capture_default_str()
      ->group("Cache");
  add_json_flag(*command, flags->json);
  command->callback([&action, flags] { action = [flags] { return info(*flags); }; });
}

}  // namespace palimpsest::cli
