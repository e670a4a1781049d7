#include "palimpsest/server/output_shape.h"

#include <memory>

#include "palimpsest/core/error.h"
#include "palimpsest/server/json_schema.h"
#include "palimpsest/text/chat_template.h"
#include "palimpsest/text/grammar/compile.h"

namespace palimpsest {

OutputShape read_output_shape(Fields& fields) {
  OutputShape out{.grammar = fields.text("grammar", ""), .schema = {}};
  if (!out.grammar.empty()) out.field = "grammar";
  const Json* format = fields.take("response_format");
  if (format == nullptr) return out;
  Fields of(*format, "response_format.");
  const std::string type = of.text("type", "");
  if (!out.grammar.empty() && type != "text")
    fail_field("grammar", "'grammar' and 'response_format' exclude each other: leave one of them out");
  if (type == "json_object") {
    const Json* shape = of.take("schema");  // as llama-server has it
    out.schema = shape == nullptr ? R"({"type":"object"})" : checked_schema(*shape, "response_format.schema", true);
  } else if (type == "json_schema") {
    const Json* named = of.take("json_schema");
    if (named == nullptr) fail_field("response_format.json_schema", "'response_format.json_schema' is missing");
    Fields schema(*named, "response_format.json_schema.");
    schema.ignore({"name", "description", "strict"});
    const Json* shape = schema.take("schema");
    if (shape == nullptr)
      fail_field("response_format.json_schema.schema", "'response_format.json_schema.schema' is missing");
    schema.end();
    out.schema = checked_schema(*shape, "response_format.json_schema.schema", true);
  } else if (type != "text") {
    fail_field("response_format.type", "response_format.type must be text, json_object or json_schema");
  }
  of.end();
  return out;
}

std::string grammar_of_schema(const OutputShape& shape) {
  try {
    return schema_to_grammar(shape.schema);
  } catch (const Error& error) {
    fail_field(shape.field, "{}: {}", shape.field, error.what());
  }
}

void compile(const OutputShape& shape, const Vocabulary* vocabulary, SamplerOptions& out) {
  if (shape.grammar.empty()) return;
  try {
    out.compiled = std::make_shared<const GrammarRules>(compile_grammar(shape.grammar, vocabulary));
  } catch (const Error& error) {
    fail_field(shape.field, "{}", error.what());
  }
}

}  // namespace palimpsest
