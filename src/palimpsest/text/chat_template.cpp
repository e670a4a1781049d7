#include "palimpsest/text/chat_template.h"

#include <fmt/ranges.h>
#include <llama-common/jinja/lexer.h>
#include <llama-common/jinja/parser.h>
#include <llama.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/text/chat_template_texts.h"
#include "palimpsest/text/message_marks.h"
#include "palimpsest/text/reply_format-inl.h"
#include "palimpsest/text/schema/compile.h"
#include "palimpsest/text/tool_grammar.h"
#include "palimpsest/text/tool_text.h"
#include "palimpsest/text/utf8.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxTemplate = std::size_t{1} << 20;  // bytes

// Templates that llama.cpp has in C++, by their names.
std::vector<std::string> built_in_names() {
  std::vector<const char*> names(static_cast<std::size_t>(llama_chat_builtin_templates(nullptr, 0)));
  llama_chat_builtin_templates(names.data(), names.size());
  return {names.begin(), names.end()};
}

bool is_built_in(const std::string& source) {
  const std::vector<std::string> names = built_in_names();
  return std::ranges::find(names, source) != names.end();
}

// The text of the template that --chat-template gives; a built-in one is its name.
std::string template_text(const std::string& source) {
  for (const NamedTemplate& each : named_templates())
    if (each.name == source) return std::string(each.text);
  if (is_built_in(source)) return source;
  if (source.find("{{") != std::string::npos || source.find("{%") != std::string::npos) return source;
  std::ifstream file(source, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (file && !text.empty() && text.size() <= kMaxTemplate) return text;
  fail("--chat-template {}: give a file with a Jinja template of at most 1 MiB, or one of {}", source,
       fmt::join(chat_template_names(), ", "));
}

// The library's messages have several lines, of which the last says what is wrong.
std::string last_line(const std::string& what) {
  std::string text = what.substr(0, what.find_last_not_of("\n ") + 1);
  if (const auto at = text.rfind('\n'); at != std::string::npos) text.erase(0, at + 1);
  return whole_characters(text.substr(0, 400));
}

// Arguments that are no JSON object, as of a call that was cut off: templates want text, or JSON, or an object.
enum class OddArguments { kAsText, kAsString, kLeftOut };

bool is_object(const std::string& arguments) {
  return nlohmann::json::parse(arguments, nullptr, false).is_object();
}

std::string arguments_of(const ToolCall& call, OddArguments odd) {
  if (odd == OddArguments::kAsText || is_object(call.arguments)) return call.arguments;
  if (odd == OddArguments::kLeftOut) return "{}";
  return nlohmann::json(call.arguments).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool has_odd_arguments(const ChatInput& input) {
  return std::ranges::any_of(input.messages, [](const ChatMessage& message) {
    return std::ranges::any_of(message.tool_calls, [](const ToolCall& call) { return !is_object(call.arguments); });
  });
}

common_chat_msg in_common(const ChatMessage& message, OddArguments odd) {
  common_chat_msg out;
  out.role = message.role;
  out.content = message.content;
  out.reasoning_content = message.reasoning;
  for (const ToolCall& call : message.tool_calls)
    out.tool_calls.push_back({call.name, arguments_of(call, odd), call.id});
  out.tool_call_id = message.tool_call_id;
  out.tool_name = message.name;
  return out;
}

common_chat_tool_choice in_common(ToolChoice choice) {
  switch (choice) {
    case ToolChoice::kNone:
      return COMMON_CHAT_TOOL_CHOICE_NONE;
    case ToolChoice::kRequired:
      return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    default:
      return COMMON_CHAT_TOOL_CHOICE_AUTO;
  }
}

common_chat_templates_inputs in_common(const ChatInput& input, OddArguments odd = OddArguments::kAsText) {
  common_chat_templates_inputs out;
  for (const ChatMessage& message : input.messages) out.messages.push_back(in_common(message, odd));
  for (const Tool& tool : input.tools) out.tools.push_back({tool.name, tool.description, tool.parameters});
  out.tool_choice = in_common(input.tool_choice);
  out.parallel_tool_calls = input.parallel_tool_calls;
  if (!input.json_schema.empty()) out.json_schema = kReplySchema;
  out.add_generation_prompt = input.add_assistant;
  if (input.continues_last) out.continue_final_message = COMMON_CHAT_CONTINUATION_AUTO;
  out.reasoning_format = input.reasoning_in_content ? COMMON_REASONING_FORMAT_NONE : COMMON_REASONING_FORMAT_AUTO;
  out.chat_template_kwargs = input.variables;
  if (const auto thinking = input.variables.find("enable_thinking"); thinking != input.variables.end())
    out.enable_thinking = thinking->second != "false";
  return out;
}

// Grammars of required calls allow any text before the call, which a small model may never end. The library's name of
// such text in the root rule is "until-N?".
std::string without_text_before_calls(std::string grammar) {
  const std::size_t root = grammar.starts_with("root ::=") ? 0 : grammar.find("\nroot ::=");
  if (root == std::string::npos) return grammar;
  const std::string_view kFree = " until-";
  for (std::size_t at = root; (at = grammar.find(kFree, at)) < grammar.find('\n', root + 1);) {
    const std::size_t end = grammar.find_first_not_of("0123456789", at + kFree.size());
    if (end != std::string::npos && grammar[end] == '?')
      grammar.erase(at, end + 1 - at);
    else
      at += kFree.size();
  }
  return grammar;
}

// The library's grammars allow a line with 20 spaces between any two symbols, which a small model may write until its
// tokens are used up.
std::string with_short_space(std::string grammar) {
  const std::string_view kSpace = R"(space ::= | " " | "\n"{1,2} [ \t]{0,20})";
  const std::size_t at = grammar.find(kSpace);
  if (at != std::string::npos && (at == 0 || grammar[at - 1] == '\n'))
    grammar.replace(at, kSpace.size(), R"(space ::= | " " | "\n")");
  return grammar;
}

// The library's grammars of schemas allow a fence of Markdown around the JSON, which clients do not expect.
std::string without_fence(std::string grammar) {
  const std::string_view kFenced = R"(("```json" space response-format space "```" | space response-format space))";
  if (const auto at = grammar.find(kFenced); at != std::string::npos)
    grammar.replace(at, kFenced.size(), "space response-format space");
  return grammar;
}

// The library's grammars of templates that write each call apart allow several calls in any case.
std::string with_one_call(std::string grammar) {
  for (const std::string_view several : {"\ntool-calls ::= (tool-call space)+", "\ntool-calls ::= (tool-call? space)+"})
    if (const auto at = grammar.find(several); at != std::string::npos)
      grammar.replace(at, several.size(), "\ntool-calls ::= tool-call space");
  return grammar;
}

// The library throws a copy of std::exception, which has lost the reason.
std::string parse_error(const std::string& source) {
  try {
    static_cast<void>(jinja::parse_from_tokens(jinja::lexer().tokenize(source)));
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

const common_chat_templates& tool_templates() {
  static const common_chat_templates_ptr templates = common_chat_templates_init(nullptr, std::string(kToolTemplate));
  return *templates;
}

}  // namespace

struct ChatTemplate::Impl {
  std::shared_ptr<const Vocabulary> vocabulary;
  std::optional<MessageMarks> marks;  // nullopt: control tokens in messages have an effect
  common_chat_templates_ptr templates;
  std::string source;
  bool built_in = false;  // in C++, without Jinja: tools are described in the system prompt
  Tools tools = Tools::kNone;
  ArgumentForm form = ArgumentForm::kFree;

  // `first`, then the other forms of odd arguments, is tried until the template takes it. `change`: of the inputs.
  template <typename Change>
  common_chat_params apply(const common_chat_templates& which, const ChatInput& input, const Change& change) const {
    std::string refusal;
    for (const OddArguments odd : {OddArguments::kAsText, OddArguments::kAsString, OddArguments::kLeftOut}) {
      common_chat_templates_inputs inputs = in_common(input, odd);
      change(inputs);
      if (&which == templates.get()) inputs.use_jinja = !built_in;
      try {
        return common_chat_templates_apply(&which, inputs);
      } catch (const std::exception& error) {
        if (refusal.empty()) refusal = last_line(error.what());
      }
      if (!has_odd_arguments(input)) break;
    }
    fail("the chat template refuses these messages: {}", refusal);
  }

  // A template may fail with the schema of a tool: its parameters are then described by their names.
  common_chat_params prompt(const ChatInput& input, bool calls) const {
    const auto without_calls = [&](common_chat_templates_inputs& inputs) {
      if (calls) inputs.tool_choice = COMMON_CHAT_TOOL_CHOICE_NONE;
    };
    if (!calls || input.tools.empty()) return apply(*templates, input, without_calls);
    try {
      return apply(*templates, input, without_calls);
    } catch (const Error&) {
      ChatInput simple = input;
      for (Tool& tool : simple.tools) tool.parameters = simple_parameters(tool.parameters);
      return apply(*templates, simple, without_calls);
    }
  }

  // As the template wants it.
  ChatInput in_form(const ChatInput& input) const {
    if (tools == Tools::kNone) return with_tools_as_text(input);
    const bool described = !input.tools.empty() && input.tool_choice != ToolChoice::kNone && tools == Tools::kCalls;
    return described ? with_tools_described(input) : input;
  }

  // Control tokens that may be in the text of the assistant's messages.
  std::set<std::string> control_texts_of_replies(const common_chat_params& params) const {
    std::vector<std::string> texts = params.preserved_tokens;
    texts.push_back(params.thinking_start_tag);
    texts.insert(texts.end(), params.thinking_end_tags.begin(), params.thinking_end_tags.end());
    std::set<std::string> out;
    for (std::string& text : texts)
      if (!reply_tokens({text}).empty()) out.insert(std::move(text));
    return out;
  }

  // Control tokens in the texts of messages are plain text.
  void keep_plain(ChatInput input, bool calls, const std::set<std::string>& of_replies, ChatPrompt& out) const {
    if (!marks) return;
    const std::string mark = marks->mark(input, of_replies, source);
    if (mark.empty()) return;
    out.text = with_reply_schema_text(prompt(in_form(input), calls).prompt, input.json_schema);
    out.breaks = MessageMarks::take_out(out.text, mark);
  }

  // By an example: whether a required call has a grammar, which form its arguments have, and whether the prompt names
  // the tool.
  void read_tools() {
    const common_chat_templates_inputs inputs = in_common(ChatInput{.messages = {{"user", "x"}},
                                                                    .tools = {{"example_tool", "", kExampleParameters}},
                                                                    .tool_choice = ToolChoice::kRequired});
    try {
      const common_chat_params params = common_chat_templates_apply(templates.get(), inputs);
      if (params.grammar.empty()) return;
      tools = params.prompt.find("example_tool") == std::string::npos ? Tools::kCalls : Tools::kCallsAndDescriptions;
      form = argument_form(params.grammar);
    } catch (const std::exception&) {  // it has none
    }
  }

  std::vector<TokenId> reply_tokens(const std::vector<std::string>& texts) const {
    std::vector<TokenId> tokens;
    for (const std::string& text : texts) {
      const auto one = vocabulary->tokenize(text, false, true);
      if (one.size() == 1 && vocabulary->is_control(one.front()) && !vocabulary->is_end(one.front()))
        tokens.push_back(one.front());
    }
    return tokens;
  }
};

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

std::shared_ptr<const ChatTemplate> ChatTemplate::load(std::shared_ptr<const Vocabulary> vocabulary,
                                                       const std::string& source, bool special_in_messages) {
  if (source.empty() && !vocabulary->has_chat_template())
    fail(
        "'{}' has no chat template: give one with --chat-template (chatml, llama3, ..., or a file), or use `palimpsest "
        "run`",
        vocabulary->path());
  std::shared_ptr<ChatTemplate> made(new ChatTemplate);
  Impl& impl = *made->impl_;
  impl.vocabulary = std::move(vocabulary);
  if (!special_in_messages) impl.marks.emplace(impl.vocabulary->control_texts());
  const std::string text = source.empty() ? std::string() : template_text(source);
  static std::mutex one_at_a_time;  // the library calls localtime(), which threads cannot share
  const std::lock_guard lock(one_at_a_time);
  try {
    impl.templates = common_chat_templates_init(impl.vocabulary->model(), text);
    impl.source = common_chat_templates_source(impl.templates.get());
  } catch (const std::exception& error) {
    const std::string reason = parse_error(text.empty() ? impl.vocabulary->chat_template() : text);
    fail("the chat template of '{}' is no Jinja template: {}; give one with --chat-template",
         source.empty() ? impl.vocabulary->path() : source, last_line(reason.empty() ? error.what() : reason));
  }
  impl.built_in = is_built_in(text);
  if (!impl.built_in) impl.read_tools();
  return made;
}

ChatPrompt ChatTemplate::apply(const ChatInput& input) const {
  const bool tools = !input.tools.empty() && input.tool_choice != ToolChoice::kNone;
  const bool as_text = impl_->tools == Tools::kNone;
  const bool one = !input.parallel_tool_calls || !input.function.empty();  // call at most
  // The prompt has the schemas as they are; without calls the library does not read them.
  common_chat_params params = impl_->prompt(impl_->in_form(input), tools);
  ChatPrompt out{.text = with_reply_schema_text(std::move(params.prompt), input.json_schema)};
  std::set<std::string> of_replies = impl_->control_texts_of_replies(params);
  // All tools are described, even if only one may be called.
  if (tools) {
    const ToolGrammar schemas(input.tools, as_text ? ArgumentForm::kJson : impl_->form);
    std::vector<std::size_t> called;
    for (std::size_t i = 0; i < input.tools.size(); ++i)
      if (input.function.empty() || input.tools[i].name == input.function) called.push_back(i);
    const auto with_placeholders = [&](common_chat_templates_inputs& inputs) {
      inputs.parallel_tool_calls = !one;
      std::vector<common_chat_tool> all;
      for (const std::size_t i : called)
        all.push_back({input.tools[i].name, input.tools[i].description, schemas.parameters(i)});
      inputs.tools = std::move(all);
    };
    params = impl_->apply(as_text ? tool_templates() : std::as_const(*impl_->templates), input, with_placeholders);
    if (!params.grammar.empty()) params.grammar = schemas.with_schemas(std::move(params.grammar), called);
    of_replies.merge(impl_->control_texts_of_replies(params));
  }
  impl_->keep_plain(input, tools, of_replies, out);

  out.stop = std::move(params.additional_stops);
  if (!params.grammar.empty()) {
    for (const common_grammar_trigger& trigger : params.grammar_triggers)
      if (trigger.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD) out.grammar_triggers.push_back(trigger.value);
    if (!params.grammar_lazy) out.grammar_triggers.clear();
    // Triggers that are patterns are not supported: calls are parsed, but not constrained.
    if (!params.grammar_lazy || out.grammar_triggers.size() == params.grammar_triggers.size()) {
      const bool required = tools && input.tool_choice == ToolChoice::kRequired;
      out.grammar = std::move(params.grammar);
      if (!input.json_schema.empty())
        out.grammar = with_short_space(with_reply_schema(without_fence(std::move(out.grammar)), input.json_grammar));
      if (required) out.grammar = with_short_space(without_text_before_calls(std::move(out.grammar)));
      if (tools && one) out.grammar = with_one_call(std::move(out.grammar));
      if (!params.grammar_lazy) out.grammar_prefix = params.generation_prompt;
    } else if (const auto strict = std::ranges::find(input.tools, true, &Tool::strict); strict != input.tools.end()) {
      throw SchemaError(fmt::format("tools[{}]", strict - input.tools.begin()),
                        "the chat template of this model allows no grammar for calls that may be left out: leave out "
                        "'strict', or require a call with \"tool_choice\": \"required\"");
    }
  }
  if (tools || params.supports_thinking) {
    out.reply_tokens = impl_->reply_tokens(params.preserved_tokens);
    auto format = std::make_shared<ReplyFormat>();
    format->params = common_chat_parser_params(params);
    format->params.parser = std::move(params.parser);
    for (const Tool& tool : input.tools) format->tools.insert(tool.name);
    out.format = std::move(format);
  }
  return out;
}

ChatPrompt ChatTemplate::apply(const std::vector<ChatMessage>& messages, bool add_assistant) const {
  ChatInput input{.messages = messages};
  input.add_assistant = add_assistant;
  return apply(input);
}

std::string ChatTemplate::text(const std::vector<ChatMessage>& messages, bool add_assistant) const {
  return apply(messages, add_assistant).text;
}

ChatTemplate::Tools ChatTemplate::tools() const {
  return impl_->tools;
}

const std::string& ChatTemplate::source() const {
  return impl_->source;
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const NamedTemplate& each : named_templates()) names.emplace_back(each.name);
  for (std::string& name : built_in_names())
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  return names;
}

}  // namespace palimpsest
