#include "palimpsest/server/request/structured_output.h"

#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/server/request/json_schema.h"
#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/tool_grammar.h"

namespace palimpsest {

void read_schema(const Json& schema, const std::string& where, bool strict, StructuredOutput& out) {
  const SchemaOptions options{.mode = strict ? SchemaMode::kStrict : SchemaMode::kLenient, .prefix = kReplyPrefix};
  out.schema = dump(schema);
  out.schema_grammar = compiled_schema(schema, where, options)->grammar;
}

StructuredOutput read_structured_output(JsonFields& fields) {
  StructuredOutput out{.grammar = fields.text("grammar", ""), .schema = {}};
  if (!out.grammar.empty()) out.field = "grammar";
  if (const Json* schema = fields.take("json_schema")) {  // llama-server's
    if (!out.grammar.empty() || fields.take("response_format") != nullptr)
      fail_field("json_schema", "'json_schema' with 'grammar' or 'response_format': leave the others out");
    out.field = "json_schema";
    read_schema(*schema, "json_schema", true, out);
    return out;
  }
  const Json* format = fields.take("response_format");
  if (format == nullptr) return out;
  JsonFields of(*format, "response_format.");
  const std::string type = of.text("type", "");
  if (!out.grammar.empty() && type != "text")
    fail_field("grammar", "'grammar' and 'response_format' exclude each other: leave one of them out");
  if (type == "json_object") {
    const Json* schema = of.take("schema");  // as llama-server has it
    read_schema(schema == nullptr ? Json{{"type", "object"}} : *schema, "response_format.schema", true, out);
  } else if (type == "json_schema") {
    const Json* named = of.take("json_schema");
    if (named == nullptr) fail_field("response_format.json_schema", "'response_format.json_schema' is missing");
    JsonFields inner(*named, "response_format.json_schema.");
    inner.ignore({"name", "description"});
    const bool strict = inner.boolean("strict", true);
    const Json* schema = inner.take("schema");
    if (schema == nullptr)
      fail_field("response_format.json_schema.schema", "'response_format.json_schema.schema' is missing");
    inner.end();
    read_schema(*schema, "response_format.json_schema.schema", strict, out);
  } else if (type != "text") {
    fail_field("response_format.type", "response_format.type must be text, json_object or json_schema");
  }
  of.end();
  return out;
}

std::string grammar_of_schema(const StructuredOutput& output) {
  return fmt::format("root ::= {}root\n{}", kReplyPrefix, output.schema_grammar);
}

void compile(const StructuredOutput& output, const Vocabulary* vocabulary, SamplerOptions& out) {
  if (output.grammar.empty()) return;
  try {
    out.compiled = std::make_shared<const GrammarRules>(compile_grammar(output.grammar, vocabulary));
  } catch (const Error& error) {
    fail_field(output.field, "{}", error.what());
  }
}

}  // namespace palimpsest
