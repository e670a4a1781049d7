#include "palimpsest/text/schema/compile.h"

#include <algorithm>
#include <utility>

#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/schema/emit.h"
#include "palimpsest/text/schema/nodes.h"
#include "palimpsest/text/schema/session.h"
#include "palimpsest/text/schema/validator.h"

namespace palimpsest {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxWork = 20'000'000;  // steps of a schema: about 0.2 s

std::vector<CompiledSchema::Property> properties_of(const schema::Nodes& nodes, const std::string& prefix) {
  using Kind = schema::Alternative::Kind;
  std::vector<CompiledSchema::Property> out;
  const auto& root = nodes.alternatives[0];
  if (root.size() != 1 || root[0].kind != Kind::kObject) return out;
  for (const schema::Property& each : root[0].properties) {
    CompiledSchema::Property one{.name = each.name, .rule = schema::rule_of(nodes, each.node, prefix)};
    one.required = each.required;
    one.string = one.any_string = nodes.any[each.node];
    one.only_string = !nodes.any[each.node];
    for (const schema::Alternative& alternative : nodes.alternatives[each.node]) {
      const bool text =
          alternative.kind == Kind::kString ||
          (alternative.kind == Kind::kText &&
           std::ranges::any_of(alternative.texts, [](const auto& word) { return word.starts_with('"'); }));
      one.string = one.string || text;
      one.only_string = one.only_string && text;
      one.any_string = one.any_string || (alternative.kind == Kind::kString && alternative.string.any());
    }
    out.push_back(std::move(one));
  }
  return out;
}

CompiledSchema compiled(const ordered_json& root, const SchemaOptions& options, bool coarse = false) {
  schema::Session session(root, options.mode, kMaxWork, coarse);
  const schema::Nodes nodes = schema::nodes_of(root, session);
  if (nodes.alternatives[0].empty() && !nodes.any[0]) throw SchemaError("", "no value is valid for this schema");
  return {.grammar = schema::grammar_of(nodes, options.prefix),
          .dropped = std::move(session.dropped),
          .properties = properties_of(nodes, options.prefix)};
}

}  // namespace

CompiledSchema compile_schema(const ordered_json& schema, const SchemaOptions& options) {
  std::string reason;
  try {
    return compiled(schema, options);
  } catch (const SchemaError& error) {
    if (options.mode == SchemaMode::kStrict) throw;
    reason = error.path() + ": " + error.what();
  } catch (const Error& error) {
    if (options.mode == SchemaMode::kStrict) throw SchemaError("", error.what());
    reason = fmt::format(": {}", error.what());
    try {
      CompiledSchema out = compiled(schema, options, true);
      out.dropped.insert(out.dropped.begin(), reason + ": without patterns, lengths, formats and bounds of numbers");
      return out;
    } catch (const Error&) {  // all of it, then
    }
  }
  CompiledSchema out = compiled(options.object ? ordered_json{{"type", "object"}} : ordered_json(true), options);
  out.dropped = {"the whole schema" + reason};
  return out;
}

bool is_valid(const ordered_json& value, const ordered_json& schema) {
  schema::Session session(schema, SchemaMode::kStrict, kMaxWork);
  return schema::Validator(session.document, session.regexes).valid(value, schema);
}

}  // namespace palimpsest
