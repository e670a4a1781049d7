// The grammar of tool calls: the chat library's for the form of the calls, ours for the arguments.
//
// The library converts schemas to grammars by itself, and drops what it does not know. It gets placeholders instead,
// and the rules that it makes of them are replaced.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/text/chat.h"

namespace palimpsest {

// How the calls of a template write arguments: as one JSON object, each as text or JSON between tags, or in a form that
// no schema constrains.
enum class ArgumentForm { kJson, kTagged, kFree };

inline constexpr const char* kExampleParameters =
    R"({"type":"object","properties":{"x":{"type":"string"},"y":{"const":770000000000}},"required":["x","y"]})";
ArgumentForm argument_form(const std::string& grammar);  // of calls of one tool with kExampleParameters

// `tools`: numbers in rule names begin at `first`.
class ToolGrammar {
 public:
  // Compiles schemas that are not compiled yet, leniently.
  ToolGrammar(const std::vector<Tool>& tools, ArgumentForm form);

  std::string parameters(std::size_t tool) const;  // a placeholder of the schema, for the library
  // The library's grammar for `tools`, a part of those of the constructor, by their numbers. Throws SchemaError if the
  // form does not allow what a strict tool promises.
  std::string with_schemas(std::string grammar, const std::vector<std::size_t>& tools) const;

 private:
  std::vector<Tool> tools_;
  ArgumentForm form_;
};

std::string prefix_of_tool(std::size_t tool);  // of the rules of its schema
// The schema of a tool without parameters, and of one whose schema cannot be read.
inline constexpr const char* kNoParameters = R"({"type":"object","properties":{}})";
std::string simple_parameters(const std::string& parameters);  // names of properties only

// Placeholder of a reply's schema, and its replacement in the grammar and the prompt.
inline constexpr const char* kReplySchema = R"({"const":770000000001})";
inline constexpr const char* kReplyPrefix = "reply-";
std::string with_reply_schema(std::string grammar, const std::string& compiled);
std::string with_reply_schema_text(std::string prompt, const std::string& schema);

}  // namespace palimpsest
