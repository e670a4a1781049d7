#include "palimpsest/text/schema/compile.h"

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
constexpr std::size_t kMaxDropped = 20;

CompiledSchema compiled(const ordered_json& root, const SchemaOptions& options) {
  schema::Session session(root, options.mode, kMaxWork);
  const schema::Nodes nodes = schema::nodes_of(root, session);
  if (nodes.alternatives[0].empty() && !nodes.any[0]) throw SchemaError("", "no value is valid for this schema");
  CompiledSchema out{.grammar = schema::grammar_of(nodes, options.prefix), .dropped = std::move(session.dropped)};
  return out;
}

}  // namespace

CompiledSchema compile_schema(const ordered_json& schema, const SchemaOptions& options) {
  std::string path, reason;
  try {
    CompiledSchema out = compiled(schema, options);
    if (out.dropped.size() > kMaxDropped) out.dropped.resize(kMaxDropped);
    return out;
  } catch (const SchemaError& error) {
    if (options.mode == SchemaMode::kStrict) throw;
    path = error.path();
    reason = error.what();
  } catch (const Error& error) {
    if (options.mode == SchemaMode::kStrict) throw SchemaError("", error.what());
    reason = error.what();
  }
  const ordered_json any = options.object ? ordered_json{{"type", "object"}} : ordered_json(true);
  CompiledSchema out = compiled(any, options);
  out.dropped = {path + ": the whole schema: " + reason};
  return out;
}

bool is_valid(const ordered_json& value, const ordered_json& schema) {
  schema::Session session(schema, SchemaMode::kStrict, kMaxWork);
  return schema::Validator(session.document, session.regexes).valid(value, schema);
}

}  // namespace palimpsest
