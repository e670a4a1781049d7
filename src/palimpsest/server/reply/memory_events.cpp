#include "palimpsest/server/reply/memory_events.h"

#include <fmt/format.h>

#include <cmath>
#include <concepts>
#include <iterator>

namespace palimpsest {
namespace {

// Writes arrays of numbers: a JSON library takes ten times as long.
class Numbers {
 public:
  explicit Numbers(std::string& out) : out_(out) { out_ += '['; }
  void add(std::integral auto number) {
    if (out_.back() != '[') out_ += ',';
    fmt::format_to(std::back_inserter(out_), "{}", number);
  }
  void add(float number) {
    if (out_.back() != '[') out_ += ',';
    if (std::isfinite(number))
      fmt::format_to(std::back_inserter(out_), "{:.6g}", number);
    else
      out_ += "null";
  }
  ~Numbers() { out_ += ']'; }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

 private:
  std::string& out_;
};

void write_heads(const MemoryUpdate& update, std::string& out) {
  out += ",\"heads\":{";
  for (std::size_t i = 0; i < update.heads.size(); ++i) {
    const auto& [head, tokens] = update.heads[i];
    fmt::format_to(std::back_inserter(out), "{}\"{}\":", i == 0 ? "" : ",", head);
    Numbers numbers(out);
    for (const HeadToken& token : tokens) {
      numbers.add(token.position);
      numbers.add(token.slot);
      numbers.add(token.score);
      numbers.add(token.into);
    }
  }
  out += '}';
}

void write_start(const MemoryState& start, std::string& out) {
  fmt::format_to(std::back_inserter(out), ",\"start\":{{\"at\":{},\"kept\":[", start.at);
  for (std::size_t t = 0; t < start.kept.size(); ++t) {
    if (t > 0) out += ',';
    Numbers numbers(out);
    for (const PositionRange& range : start.kept[t]) {
      numbers.add(range.first);
      numbers.add(range.last);
    }
  }
  out += "],\"merged\":";
  {
    Numbers numbers(out);
    for (const MergedInto& merged : start.merged) {
      numbers.add(merged.table);
      numbers.add(merged.position);
      numbers.add(merged.into);
    }
  }
  out += '}';
}

Json layout_json(const MethodPlan& plan) {
  const HeadGeometry& geometry = plan.cache().geometry;
  Json heads = Json::array();
  for (int layer = 0; layer < geometry.layers(); ++layer) heads.push_back(geometry.layer(layer).kv_heads);
  const Method& method = plan.method();
  Json pinned = Json::array();
  for (const PositionRange& pin : method.protection.pins) pinned.push_back({pin.first, pin.last});
  return {{"heads", std::move(heads)},
          {"tables", tables_of(plan.cache())},
          {"method", method.name},
          {"budget", method.budget},
          {"sinks", method.evicts() ? method.sinks() : 0},
          {"pinned", std::move(pinned)}};
}

}  // namespace

std::string memory_event(const MemoryUpdate& update, TokenSplitter& texts) {
  std::string out = fmt::format("{{\"read\":{},\"first\":{},\"bytes\":[{},{},{}],\"tokens\":[", update.read,
                                update.first, update.bytes.cache, update.bytes.limit, update.bytes.full);
  for (std::size_t i = 0; i < update.tokens.size(); ++i) {
    if (i > 0) out += ',';
    out += dump(Json(texts.text(update.tokens[i])));
  }
  out += ']';
  if (update.plan != nullptr) out += ",\"layout\":" + dump(layout_json(*update.plan));
  if (update.start) write_start(*update.start, out);
  out += ",\"changes\":";
  {
    Numbers numbers(out);
    for (const MemoryChange& change : update.changes) {
      numbers.add(change.at);
      numbers.add(change.table);
      numbers.add(change.position);
      numbers.add(change.into);
    }
  }
  if (!update.heads.empty()) write_heads(update, out);
  if (update.last) out += ",\"last\":true";
  return out + '}';
}

}  // namespace palimpsest
