#include "palimpsest/info_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "palimpsest/core/cache_type.h"
#include "palimpsest/progress.h"
#include "palimpsest/system.h"

namespace palimpsest::cli {
namespace {

using Json = nlohmann::ordered_json;
using Factors = std::vector<std::pair<std::size_t, const char*>>;

Json term(const char* name, const Factors& factors, std::size_t bytes) {
  Json list = Json::array();
  for (const auto& [count, of] : factors) list.push_back({{"count", count}, {"of", of}});
  return {{"name", name}, {"factors", list}, {"bytes", bytes}};
}

// "3 layers x 2 KV heads x 4 pages" if all have the same number of pages, else "25 pages of all heads".
Factors pages_of(std::size_t all, const Factors& owners, const char* together, bool uniform) {
  if (!uniform) return {{all, together}};
  Factors out = owners;
  for (const auto& [count, of] : owners) all /= count;
  out.emplace_back(all, "pages");
  return out;
}

Factors joined(Factors a, const Factors& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// `prompt`: tokens of one that is read; 0: none.
Json terms_of(const MethodPlan& plan, const Hyperparameters& hyper, const std::vector<Occupancy>& occupancy,
              long long prompt, std::size_t batch) {
  const Footprint f = footprint(plan.cache(), occupancy);
  const std::size_t scratch = plan.scratch_bytes(f), hidden = plan.hidden_bytes(prompt);
  const std::size_t all = f.total() + scratch + hidden;
  const bool uniform = occupancy.size() == 1;
  const HeadGeometry& g = hyper.geometry;
  const Factors heads = g.is_uniform() ? Factors{{static_cast<std::size_t>(g.layers()), "layers"},
                                                 {static_cast<std::size_t>(g.max_kv_heads()), "KV heads"}}
                                       : Factors{{f.heads, "KV heads of all layers"}};
  const auto widest = static_cast<std::size_t>(g.max_kv_heads());  // weights are stored for one layer
  const Factors of_heads = pages_of(f.head_pages, heads, "pages of all heads", uniform);
  const Factors of_tables = pages_of(f.table_pages, {{f.tables, "tables"}}, "pages of all tables", uniform);
  const auto [min, max] = std::ranges::minmax(occupancy, {}, &Occupancy::tokens);
  Json out;
  out["tokens"] = max.tokens;
  if (!uniform) out["tokens_min"] = min.tokens;
  out["terms"] = {
      term("keys and values",
           f.row_bytes > 0 ? joined(of_heads, {{f.page_slots, "slots"}, {f.row_bytes, "bytes of a row"}})
                           : Factors{{f.rows, "bytes of pages of heads of several widths"}},
           f.rows),
      term("columns", joined(of_tables, {{f.page_slots, "slots"}, {f.slot_bytes, "bytes of a slot"}}), f.columns),
      term("tokens in a page", joined(of_tables, {{sizeof(int), "bytes"}}), f.counts),
      term("free slots",
           uniform ? Factors{{f.tables, "tables"}, {f.queue_entries / f.tables, "entries"}, {sizeof(int), "bytes"}}
                   : Factors{{f.queue_entries, "capacity of all tables"}, {sizeof(int), "bytes"}},
           f.queues),
      term("page ids", joined(of_heads, {{sizeof(PageId), "bytes"}}), f.blocks),
  };
  if (f.head_statistics > 0)
    out["terms"].push_back(
        term("of queries", joined(heads, {{f.head_statistics / f.heads, "bytes"}}), f.head_statistics));
  if (f.state > 0)
    out["terms"].push_back(
        term("recurrent state",
             {{2, "before and after a step"}, {hyper.state_floats(), "floats"}, {sizeof(float), "bytes"}}, f.state));
  if (f.merged > 0)
    out["terms"].push_back(
        term("merged tokens", {{f.tables, "tables"}, {f.merged / f.tables, "bytes at most"}}, f.merged));
  out["terms"].push_back(term("working memory", {{f.working, "bytes at most"}}, f.working));
  if (scratch > 0)
    out["terms"].push_back(term("weights", {{widest, "KV heads"}, {scratch / widest, "bytes at most"}}, scratch));
  if (hidden > 0)
    out["terms"].push_back(term("hidden states",
                                {{static_cast<std::size_t>(prompt), "tokens"},
                                 {static_cast<std::size_t>(hyper.width), "floats"},
                                 {sizeof(float), "bytes"}},
                                hidden));
  out["bytes_in_use"] = f.in_use();
  out["bytes_tables"] = all - f.in_use();
  out["bytes"] = all;
  out["bytes_of_batch"] = all * batch;
  return out;
}

void print_part(const Json& part, long long batch, const std::string& title) {
  fmt::print("\n{}\n", title);
  for (const Json& t : part["terms"]) {
    std::string product;
    for (const Json& factor : t["factors"])
      product += fmt::format("{}{} {}", product.empty() ? "" : " x ", thousands(factor["count"].get<long long>()),
                             factor["of"].get<std::string>());
    fmt::print("  {:16}  {:>15} B  = {}\n", t["name"].get<std::string>(), thousands(t["bytes"].get<long long>()),
               product);
  }
  const auto bytes = part["bytes"].get<std::size_t>(), all = part["bytes_of_batch"].get<std::size_t>();
  fmt::print("  {:16}  {:>15} B  = {}\n", "together", thousands(static_cast<long long>(bytes)), human_bytes(bytes));
  if (batch > 1)
    fmt::print("  {:16}  {:>15} B  = {}, {} sequences\n", "batch", thousands(static_cast<long long>(all)),
               human_bytes(all), batch);
}

}  // namespace

Json cache_terms(const SessionOptions& options, const Hyperparameters& hyper, std::optional<long long> tokens,
                 long long batch) {
  const bool bounded = options.method.bounded();
  if (!tokens && !bounded) tokens = std::max(1, hyper.trained_context);
  // Without --tokens, a prompt that is read in one step is assumed to fill the trained context.
  const bool whole = options.method.schedule == Schedule::kPromptStep && options.method.prompt_max == 0;
  const long long prompt = tokens.value_or(whole ? std::max(1, hyper.trained_context) : kMaxTokens);
  const MethodPlan plan = plan_of(options, hyper);
  Occupancies o = plan.occupancies(prompt, tokens.value_or(-1));
  if (!bounded) o.decode = plan.occupancies(1, *tokens).decode;  // all tokens but the first may be generated
  const auto part = [&](const std::vector<Occupancy>& occupancy, long long of_prompt) {
    return terms_of(plan, hyper, occupancy, of_prompt, static_cast<std::size_t>(batch));
  };
  Json out = {{"method", spell_out(options.method)},
              {"type", name_of(options.cache_type)},
              {"page_size", options.page_size},
              {"chunk", options.chunk},
              {"layerwise", options.layerwise},
              {"batch", batch},
              {"bounded", bounded}};
  out["writing"] = part(o.decode, 0);
  out["reading"] = part(o.prefill, prompt);
  return out;
}

void print_cache_terms(const Json& c) {
  const auto batch = c["batch"].get<long long>();
  const auto tokens = [&](const char* part) {
    const std::string max = thousands(c[part]["tokens"].get<long long>());
    if (!c[part].contains("tokens_min")) return max;
    return fmt::format("{} to {}", thousands(c[part]["tokens_min"].get<long long>()), max);
  };
  fmt::print("{}\n{} keys and values, pages of {} slots\n", spell_short(parse_method(c["method"].get<std::string>())),
             c["type"].get<std::string>(), c["page_size"].get<int>());
  print_part(c["writing"], batch, fmt::format("Decode: at most {} tokens", tokens("writing")));
  print_part(c["reading"], batch,
             fmt::format("Prefill in chunks of {}{}: at most {} tokens", c["chunk"].get<int>(),
                         c["layerwise"].get<bool>() ? ", layer by layer" : "", tokens("reading")));
}

}  // namespace palimpsest::cli
