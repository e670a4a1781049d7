// Chat templates: the named ones are libllama's; tools of ten families; calls that the grammar allows are parsed back.
#include "palimpsest/text/chat_template.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/text/grammar/compile.h"
#include "palimpsest/text/reply_reader.h"
#include "palimpsest/text/sampler.h"
#include "palimpsest/text/text_stream.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"
#include "tests/support/templates.h"

namespace palimpsest::testing {
namespace {

using Json = nlohmann::ordered_json;

std::shared_ptr<const Vocabulary> own_vocabulary() {
  static const std::shared_ptr<const Vocabulary> vocabulary = Vocabulary::load(default_model());
  return vocabulary;
}

std::shared_ptr<const ChatTemplate> own_template(const std::string& source) {
  return ChatTemplate::load(own_vocabulary(), source);
}

std::string of_libllama(const std::string& name, const std::vector<ChatMessage>& messages, bool add_assistant) {
  std::vector<llama_chat_message> chat;
  for (const ChatMessage& message : messages) chat.push_back({message.role.c_str(), message.content.c_str()});
  std::string out(4096, '\0');
  out.resize(static_cast<std::size_t>(llama_chat_apply_template(name.c_str(), chat.data(), chat.size(), add_assistant,
                                                                out.data(), static_cast<std::int32_t>(out.size()))));
  return out;
}

TEST(ChatTemplate, NamedOnesAreLibllamas) {
  const std::vector<std::vector<ChatMessage>> chats = {
      {{"user", "hi"}},
      {{"system", "Be kind."}, {"user", "hi"}, {"assistant", "hello"}, {"user", "and\nnow?"}},
      {{"user", "hi"}, {"assistant", "hello"}},
  };
  for (const std::string& name : chat_template_names())
    for (const auto& chat : chats)
      for (const bool add_assistant : {true, false})
        EXPECT_EQ(own_template(name)->text(chat, add_assistant), of_libllama(name, chat, add_assistant)) << name;
  EXPECT_GE(chat_template_names().size(), 5u);
}

TEST(ChatTemplate, IsTheModelsOwnAFileOrAText) {
  EXPECT_EQ(own_template("")->text({{"user", "hi"}}), "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(own_template("{{ messages[0].content | upper }}{{ more }}")->text({{"user", "hi"}}), "HI");
  EXPECT_NE(error_of([] { own_template("/no/such/file"); }).find("chatml"), std::string::npos);
  for (const char* broken : {"{% if %}", "{{ messages", "{% for m in messages %}{{ m.content }}", "{{ 1 + }}"}) {
    const std::string error = error_of([&] { own_template(broken); });
    EXPECT_NE(error.find("no Jinja template"), std::string::npos) << error;
    EXPECT_EQ(error.find("std::exception"), std::string::npos) << error;
  }
  const auto strict = own_template("{{ raise_exception('roles must alternate') }}");
  EXPECT_NE(error_of([&] { strict->text({{"user", "hi"}}); }).find("roles must alternate"), std::string::npos);
}

TEST(ChatTemplate, VariablesReachTheTemplate) {
  const auto own = own_template("{% if polite %}Please. {% endif %}{{ messages[0].content }}{{ n + 1 }}");
  EXPECT_EQ(own->apply({.messages = {{"user", "hi"}}, .variables = {{"polite", "true"}, {"n", "2"}}}).text,
            "Please. hi3");
}

const std::vector<Tool>& tools() {
  static const std::vector<Tool> tools = {
      {"get_weather", "Current weather",
       R"({"type":"object","properties":{"city":{"type":"string","enum":["Rome","Oslo"]},"days":{"type":"integer","minimum":1,"maximum":7},"code":{"type":"string","pattern":"^\"[A-C]{2}\\\\$"}},"required":["city","days","code"]})"},
      {"set_alarm", "Sets an alarm", R"({"type":"object","properties":{"on":{"type":"boolean"}},"required":["on"]})"}};
  return tools;
}

// Any text that the grammar allows, as a model with arbitrary logits writes it.
std::string constrained_text(const ChatPrompt& prompt, std::uint32_t seed, const std::string& begin) {
  const auto words = own_vocabulary();
  SamplerOptions options{.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed, .grammar = prompt.grammar};
  options.grammar_prefix = prompt.grammar_prefix;
  options.grammar_tokens = prompt.reply_tokens;
  Sampler sampler(options, words.get(), words->size());
  TextStream text(*words, {.stop = prompt.stop, .shown = prompt.reply_tokens});
  std::vector<float> logits(static_cast<std::size_t>(words->size()), 0);
  for (TokenId token = 0; token < words->size(); ++token)  // prefers to end: free parts stay short
    if (words->is_end(token)) logits[static_cast<std::size_t>(token)] = 30;
  // Structure is likelier than free text.
  for (const char* likely : {"{", "\"", "}", "<", "[", "|", "call"})
    for (const TokenId token : words->tokenize(likely, false, false)) logits[static_cast<std::size_t>(token)] = 6;
  std::string out;
  for (const TokenId token : words->tokenize(begin, false, false)) {
    std::vector<float> only(logits.size(), 0);
    only[static_cast<std::size_t>(token)] = 100;
    if (words->piece(token).empty()) continue;
    EXPECT_EQ(sampler.sample(only), token);
    out += text.put(token);
  }
  for (int i = 0; i < 3000; ++i) {
    const TokenId token = sampler.sample(logits);
    if (words->is_end(token)) return out + text.finish();
    out += text.put(token);
  }
  ADD_FAILURE() << "endless: " << out.substr(0, 300);
  return out;
}

// Where the grammar also allows text or reasoning before a call, or any arguments.
std::string begin_of(const std::string& family) {
  if (family == "gpt-oss") return " to=functions.";
  if (family == "Command R7B") return "<|START_ACTION|>";
  if (family == "Gemma 4") return "<|tool_call>call:set_alarm{on:true}<tool_call|>";
  return "";
}

void expect_valid(const ToolCall& call, const std::string& context) {
  ASSERT_TRUE(Json::accept(call.arguments)) << context << "\n" << call.arguments;
  const Json arguments = Json::parse(call.arguments);
  if (call.name == "get_weather") {
    ASSERT_TRUE(arguments.size() == 3 && arguments.contains("city") && arguments.contains("days") &&
                arguments.contains("code"))
        << call.arguments << "\n"
        << context;
    EXPECT_TRUE(arguments["city"] == "Rome" || arguments["city"] == "Oslo") << context;
    EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 7) << context;
    const std::string code = arguments["code"].get<std::string>();
    EXPECT_TRUE(code.size() == 4 && code.front() == '"' && code.back() == '\\') << context;
  } else {
    EXPECT_EQ(call.name, "set_alarm") << context;
    EXPECT_TRUE(arguments.value("on", Json()).is_boolean()) << call.arguments << "\n" << context;
  }
}

std::vector<ToolCall> calls_of(const std::vector<ReplyDelta>& deltas) {
  std::vector<ToolCall> calls;
  for (const ReplyDelta& delta : deltas)
    for (const ReplyDelta::Call& call : delta.calls) {
      if (call.index == calls.size()) calls.push_back({call.id, call.name, ""});
      EXPECT_EQ(call.index + 1, calls.size());
      calls.back().arguments += call.arguments;
    }
  return calls;
}

TEST(ChatTemplate, ConstrainedCallsOfEveryFamilyAreParsedBack) {
  int found = 0;
  for (const TemplateFamily& family : template_families()) {
    const auto path = template_path(family.file);
    if (!path) continue;
    ++found;
    SCOPED_TRACE(family.family);
    const auto chat = own_template(*path);
    EXPECT_EQ(static_cast<int>(chat->tools()), family.tools);
    for (const std::uint32_t seed : {1U, 2U, 3U}) {
      const ChatPrompt prompt = chat->apply({.messages = {{"user", "Weather?"}},
                                             .tools = tools(),
                                             .tool_choice = ToolChoice::kRequired,
                                             .function = seed == 3 ? "set_alarm" : "",
                                             .parallel_tool_calls = seed == 2,
                                             .variables = {{"enable_thinking", "false"}}});
      EXPECT_NE(prompt.text.find("get_weather"), std::string::npos);
      EXPECT_NE(prompt.text.find("set_alarm"), std::string::npos);
      ASSERT_FALSE(prompt.grammar.empty());
      ASSERT_NE(prompt.format, nullptr);
      const std::string text = constrained_text(prompt, seed, begin_of(family.family));
      ReplyReader reader(prompt.format);
      std::vector<ReplyDelta> deltas;
      for (const char c : text) deltas.push_back(reader.put(std::string_view(&c, 1)));
      deltas.push_back(reader.finish(true));
      const std::vector<ToolCall> calls = calls_of(deltas);
      EXPECT_GE(calls.size(), 1u) << text.substr(0, 300);
      EXPECT_TRUE(seed == 2 || calls.size() == 1) << text.substr(0, 300);
      for (const ToolCall& call : calls) {
        EXPECT_FALSE(call.id.empty());
        EXPECT_TRUE(seed != 3 || call.name == "set_alarm") << call.name;
        expect_valid(call, text);
      }
      // The same in one piece.
      ReplyReader whole(prompt.format);
      std::vector<ReplyDelta> once = {whole.put(text)};
      once.push_back(whole.finish(true));
      const std::vector<ToolCall> again = calls_of(once);
      ASSERT_EQ(again.size(), calls.size());
      for (std::size_t i = 0; i < calls.size(); ++i) {
        EXPECT_EQ(again[i].name, calls[i].name);
        EXPECT_EQ(again[i].arguments, calls[i].arguments);
      }
    }
  }
  if (found == 0) GTEST_SKIP() << "needs the chat templates of llama.cpp's source package";
}

// Schemas that the library would refuse or drop; the prompt has them as they are. Calls that may be left out, too.
TEST(ChatTemplate, SchemasOfToolsAreOurs) {
  const std::vector<Tool> odd = {
      {"f", "",
       R"({"type":"object","properties":{"word":{"type":"string","pattern":"^(?!x)q{3}$"},"n":{"type":"integer","multipleOf":7}},"required":["n"]})"},
      {"g", "", R"({"type":"object","properties":{"unusual":{"$ref":"https://example.com/x"},"any":{"type":"any"}}})"},
      {"h", "", R"({"properties":null})"}};
  int found = 0;
  for (const TemplateFamily& family : template_families()) {
    const auto path = template_path(family.file);
    if (!path) continue;
    ++found;
    SCOPED_TRACE(family.family);
    const auto chat = own_template(*path);
    for (const ToolChoice choice : {ToolChoice::kAuto, ToolChoice::kRequired})
      for (const bool parallel : {false, true}) {
        const ChatPrompt prompt = chat->apply(
            {.messages = {{"user", "Hi"}}, .tools = odd, .tool_choice = choice, .parallel_tool_calls = parallel});
        EXPECT_NE(prompt.text.find("unusual"), std::string::npos);
        EXPECT_EQ(prompt.text.find("7700"), std::string::npos);
        EXPECT_EQ(prompt.grammar.find("7700"), std::string::npos);
        if (prompt.grammar.empty()) {  // gpt-oss: calls that may be left out are not constrained
          EXPECT_EQ(choice, ToolChoice::kAuto);
          continue;
        }
        const std::string name = family.family;
        if (name != "Gemma 4") {
          EXPECT_NE(prompt.grammar.find("t0-root ::= "), std::string::npos);
        }
        EXPECT_NO_THROW(compile_grammar(prompt.grammar, own_vocabulary().get()));
      }
    std::vector<Tool> strict = {odd.front()};
    strict.front().strict = true;
    const auto apply_strict = [&] {
      chat->apply({.messages = {{"user", "Hi"}}, .tools = strict, .tool_choice = ToolChoice::kRequired});
    };
    if (std::string(family.family) == "Gemma 4")
      EXPECT_NE(error_of(apply_strict).find("as plain text"), std::string::npos);
    else
      EXPECT_NO_THROW(apply_strict());
  }
  if (found == 0) GTEST_SKIP() << "needs the chat templates of llama.cpp's source package";
}

// Arguments between tags: those that are no strings are JSON of their schema.
TEST(ChatTemplate, ArgumentsBetweenTagsAreConstrained) {
  const auto path = template_path("Qwen3-Coder.jinja");
  if (!path) GTEST_SKIP() << "needs the chat templates of llama.cpp's source package";
  const auto chat = own_template(*path);
  std::vector<Tool> tools = {
      {"f", "",
       R"({"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer","minimum":3,"maximum":5}},"required":["s","n"]})"}};
  tools.front().strict = true;
  const ChatPrompt prompt =
      chat->apply({.messages = {{"user", "Hi"}}, .tools = tools, .tool_choice = ToolChoice::kRequired});
  EXPECT_NE(prompt.grammar.find("[3-5]"), std::string::npos) << prompt.grammar;
  tools.front().parameters = R"({"type":"object","properties":{"s":{"type":"string","enum":["a"]}}})";
  EXPECT_NE(error_of([&] {
              chat->apply({.messages = {{"user", "Hi"}}, .tools = tools, .tool_choice = ToolChoice::kRequired});
            }).find("'s' as plain text"),
            std::string::npos);
}

// A conversation with calls and results can be rendered, whether the template has tools or not.
TEST(ChatTemplate, ResultsOfCallsAreInThePromptOfEveryFamily) {
  int found = 0;
  for (const TemplateFamily& family : template_families()) {
    const auto path = template_path(family.file);
    if (!path) continue;
    ++found;
    SCOPED_TRACE(family.family);
    ChatMessage call{"assistant", ""};
    call.tool_calls = {{"abcdefghi", "get_weather", R"({"city":"Rome","days":2})"}};
    ChatMessage result{"tool", R"({"sky":"blue"})"};
    result.tool_call_id = "abcdefghi";
    result.name = "get_weather";
    const std::string text =
        own_template(*path)->apply({.messages = {{"user", "Weather?"}, call, result}, .tools = tools()}).text;
    EXPECT_NE(text.find("Rome"), std::string::npos) << text.substr(0, 300);
    EXPECT_NE(text.find("blue"), std::string::npos) << text.substr(0, 300);
    for (const char* odd : {"{", "", "{\"city\": \"Ro", "[1]", "null"}) {  // cut off, or never an object
      call.tool_calls[0].arguments = odd;
      EXPECT_NO_THROW(own_template(*path)->apply({.messages = {{"user", "Weather?"}, call, result}, .tools = tools()}))
          << odd;
    }
  }
  if (found == 0) GTEST_SKIP() << "needs the chat templates of llama.cpp's source package";
}

}  // namespace
}  // namespace palimpsest::testing
