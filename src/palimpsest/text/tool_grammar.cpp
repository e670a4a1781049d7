#include "palimpsest/text/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/schema/compile.h"

namespace palimpsest {
namespace {

using ToolJson = nlohmann::ordered_json;

constexpr std::size_t kMaxToolGrammars =
    160'000;  // bytes of all tools; larger ones of tools without strict are dropped
constexpr unsigned long long kFirstPlaceholder = 770'000'000'000;
constexpr std::size_t kMaxProperties = 10'000;  // of one tool: placeholders are numbers

std::string placeholder(std::size_t tool, std::size_t property) {
  return std::to_string(kFirstPlaceholder + 1'000'000 + tool * kMaxProperties + property);
}

// The line of a rule: begin and end of its body.
bool find_rule(const std::string& grammar, const std::string& name, std::size_t& begin, std::size_t& end) {
  const std::string head = name + " ::= ";
  std::size_t at = grammar.starts_with(head) ? 0 : grammar.find("\n" + head);
  if (at == std::string::npos) return false;
  begin = at + head.size() + (at == 0 && grammar.starts_with(head) ? 0 : 1);
  end = std::min(grammar.find('\n', begin), grammar.size());
  return true;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Appends the rules that are not in the grammar yet: those of any JSON value are shared.
void append_rules(std::string& grammar, const std::string& rules, std::set<std::string>& known) {
  for (std::size_t begin = 0; begin < rules.size();) {
    const std::size_t end = std::min(rules.find('\n', begin), rules.size());
    std::string line = rules.substr(begin, end - begin);
    begin = end + 1;
    if (line.starts_with("any-json-") && !known.insert(line).second) continue;
    grammar += line + "\n";
  }
}

std::shared_ptr<const CompiledSchema> compiled_schema(const Tool& tool, std::size_t number) {
  if (tool.compiled != nullptr) return tool.compiled;
  const SchemaOptions options{.mode = SchemaMode::kLenient, .prefix = prefix_of_tool(number), .object = true};
  return std::make_shared<const CompiledSchema>(compile_schema(ToolJson::parse(tool.parameters), options));
}

}  // namespace

ArgumentForm argument_form(const std::string& grammar) {
  std::size_t begin = 0, end = 0;
  if (find_rule(grammar, "tool-0-schema", begin, end)) return ArgumentForm::kJson;
  return grammar.find(std::to_string(kFirstPlaceholder)) != std::string::npos ? ArgumentForm::kTagged
                                                                              : ArgumentForm::kFree;
}

std::string prefix_of_tool(std::size_t tool) {
  return fmt::format("t{}-", tool);
}

ToolGrammar::ToolGrammar(const std::vector<Tool>& tools, ArgumentForm form) : tools_(tools), form_(form) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < tools_.size(); ++i) {
    tools_[i].compiled = compiled_schema(tools_[i], i);
    bytes += tools_[i].compiled->grammar.size();
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < tools_.size(); ++i)
    if (!tools_[i].strict) order.push_back(i);
  std::ranges::sort(order, std::greater(), [&](std::size_t i) { return tools_[i].compiled->grammar.size(); });
  for (const std::size_t i : order) {
    if (bytes <= kMaxToolGrammars) break;
    bytes -= tools_[i].compiled->grammar.size();
    const SchemaOptions options{.mode = SchemaMode::kLenient, .prefix = prefix_of_tool(i)};
    tools_[i].compiled = std::make_shared<const CompiledSchema>(compile_schema({{"type", "object"}}, options));
    bytes += tools_[i].compiled->grammar.size();
  }
}

std::string ToolGrammar::parameters(std::size_t tool) const {
  if (form_ != ArgumentForm::kTagged) return kNoParameters;
  const auto& properties = tools_[tool].compiled->properties;
  ToolJson out = {{"type", "object"}, {"properties", ToolJson::object()}, {"required", ToolJson::array()}};
  for (std::size_t i = 0; i < std::min(properties.size(), kMaxProperties); ++i) {
    const auto& property = properties[i];
    // Text that may be a string is a string, unless it is JSON of another type in any case.
    out["properties"].emplace(property.name, property.string ? ToolJson{{"type", "string"}}
                                                             : ToolJson{{"const", std::stoull(placeholder(tool, i))}});
    if (property.required) out["required"].push_back(property.name);
  }
  if (!properties.empty()) return out.dump();
  // Objects of several kinds: the properties of the schema, each as any text.
  const ToolJson schema = ToolJson::parse(tools_[tool].parameters, nullptr, false);
  if (schema.is_object() && schema.contains("properties") && schema["properties"].is_object())
    for (const auto& [name, value] : schema["properties"].items()) out["properties"].emplace(name, ToolJson::object());
  return out.dump();
}

std::string ToolGrammar::with_schemas(std::string grammar, const std::vector<std::size_t>& tools) const {
  std::set<std::string> known;
  if (!grammar.ends_with('\n')) grammar += '\n';
  for (std::size_t number = 0; number < tools.size(); ++number) {
    const Tool& tool = tools_[tools[number]];
    const CompiledSchema& schema = *tool.compiled;
    const std::string prefix = prefix_of_tool(tools[number]);
    const auto refuse = [&](const std::string& what) {
      if (tool.strict)
        throw SchemaError(
            fmt::format("tools[{}]", tools[number]),
            fmt::format("the chat template of this model writes {} as plain text, which a schema does not "
                        "constrain: leave out 'strict'",
                        what));
    };
    if (form_ == ArgumentForm::kFree) {
      if (schema.properties.empty() && tool.parameters == kNoParameters) continue;
      refuse("arguments");
      continue;
    }
    std::size_t begin = 0, end = 0;
    if (form_ == ArgumentForm::kJson) {
      if (!find_rule(grammar, fmt::format("tool-{}-schema", number), begin, end))
        fail("the chat template's grammar has no rule for the arguments of tool '{}'", tool.name);
      grammar.replace(begin, end - begin, prefix + "root");
      append_rules(grammar, schema.grammar, known);
      continue;
    }
    bool used = false;
    for (std::size_t i = 0; i < std::min(schema.properties.size(), kMaxProperties); ++i) {
      const auto& property = schema.properties[i];
      if (property.string) {
        if (!property.only_string || !property.any_string) refuse(fmt::format("'{}'", property.name));
        continue;
      }
      replace_all(grammar, "\"" + placeholder(tools[number], i) + "\"", property.rule);
      used = true;
    }
    if (schema.properties.empty() && tool.parameters != kNoParameters) refuse("arguments");
    if (used) append_rules(grammar, schema.grammar, known);
  }
  return grammar;
}

std::string simple_parameters(const std::string& parameters) {
  const ToolJson schema = ToolJson::parse(parameters, nullptr, false);
  ToolJson out = ToolJson::parse(kNoParameters);
  if (schema.is_object() && schema.contains("properties") && schema["properties"].is_object())
    for (const auto& [name, value] : schema["properties"].items())
      out["properties"].emplace(name, ToolJson{{"type", "string"}});
  return out.dump();
}

std::string with_reply_schema(std::string grammar, const std::string& compiled) {
  replace_all(grammar, "\"770000000001\"", std::string(kReplyPrefix) + "root");
  // No space before the value, unless reasoning is between: the library allows lines of it there.
  std::size_t begin = 0, end = 0;
  if (find_rule(grammar, "root", begin, end)) {
    std::string root = grammar.substr(begin, end - begin);
    for (std::size_t size = 0; size != root.size();) {
      size = root.size();
      replace_all(root, "space space", "space");
      replace_all(root, "space response-format space", "space response-format");
      if (root.ends_with("space response-format")) root.erase(root.size() - 21, 6);
    }
    replace_all(root, " space (", " (space ");
    grammar.replace(begin, end - begin, root);
  }
  if (!grammar.ends_with('\n')) grammar += '\n';
  return grammar + compiled;
}

std::string with_reply_schema_text(std::string prompt, const std::string& schema) {
  if (schema.empty()) return prompt;
  for (const char* text : {R"({"const":770000000001})", R"({"const": 770000000001})", "{\n  \"const\": 770000000001\n}",
                           "{\n    \"const\": 770000000001\n}"})
    replace_all(prompt, text, schema);
  return prompt;
}

}  // namespace palimpsest
