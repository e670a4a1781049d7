#include "palimpsest/server/request/structured_output.h"

#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/server/request/json_schema.h"
#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/tool_grammar.h"

namespace palimpsest {

void read_grammar(JsonFields& fields, StructuredOutput& out) {
  out.grammar = fields.text("grammar", "");
  if (!out.grammar.empty()) out.field = fields.path("grammar");
}

void read_schema(const Json& schema, const std::string& field, bool strict, StructuredOutput& out) {
  const SchemaOptions options{.mode = strict ? SchemaMode::kStrict : SchemaMode::kLenient, .prefix = kReplyPrefix};
  out.field = field;
  out.schema = dump(schema);
  out.schema_grammar = compiled_schema(schema, field, options)->grammar;
}

std::string grammar_of_schema(const StructuredOutput& output) {
  return fmt::format("root ::= {}root\n{}", kReplyPrefix, output.schema_grammar);
}

void compile_output(const StructuredOutput& output, const Vocabulary* vocabulary, SamplerOptions& out) {
  if (output.grammar.empty()) return;
  try {
    out.compiled = std::make_shared<const GrammarRules>(compile_grammar(output.grammar, vocabulary));
  } catch (const Error& error) {
    fail_field(output.field, "{}", error.what());
  }
}

}  // namespace palimpsest
