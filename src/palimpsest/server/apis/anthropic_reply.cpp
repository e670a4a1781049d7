// The replies of Anthropic's /v1/messages: messages of content blocks, the events of a stream, and errors.
#include <algorithm>

#include "palimpsest/server/apis/reply_writers.h"

namespace palimpsest {
namespace {

// Clients send a thinking block back only with a signature. Nothing checks it.
constexpr const char* kSignature = "palimpsest";

const char* anthropic_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

class AnthropicWriter final : public ReplyWriter {
 public:
  explicit AnthropicWriter(AnthropicWriterOptions options) : options_(std::move(options)) {}

  Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) override {
    const Choice& choice = choices.front();
    Json content = Json::array();
    if (!choice.reasoning.empty())
      content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", kSignature}});
    if (!choice.text.empty()) content.push_back({{"type", "text"}, {"text", choice.text}});
    for (const ToolCall& call : choice.calls) {
      Json input = Json::parse(call.arguments, nullptr, false);
      if (!input.is_object()) input = Json::object();  // cut off at max_tokens
      content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
    }
    Json out = message(std::move(content));
    out.update(ending(choice.finish, choice.stop_word, !choice.calls.empty()));
    out["usage"] = usage_of(usage);
    return out;
  }

  // How many tokens are cached is known at the end.
  std::string begin() override {
    ReplyUsage so_far;
    so_far.prompt_tokens = options_.prompt_tokens;
    Json empty = message(Json::array());
    empty["usage"] = usage_of(so_far);
    return event("message_start", {{"message", std::move(empty)}});
  }
  std::string piece(const Event& one, const ReplyDelta& delta, bool calls, const Json& session,
                    const ReplyUsage*) override {
    std::string out;
    if (!delta.reasoning.empty())
      out += text(Block::kThinking, {{"type", "thinking_delta"}, {"thinking", delta.reasoning}});
    if (!delta.content.empty()) out += text(Block::kText, {{"type", "text_delta"}, {"text", delta.content}});
    for (const ReplyDelta::Call& call : delta.calls) {
      if (!call.id.empty())
        out +=
            open(Block::kCall, {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", Json::object()}});
      if (!call.arguments.empty()) out += block_delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    }
    if (!one.last) return out;
    ending_ = ending(one.finish, one.stop_word, calls);
    session_ = session;
    return out + close();
  }
  std::string memory(int choice, const std::string& update) override {
    return "event: memory\ndata: {\"type\":\"memory\",\"memory\":{\"choice\":" + std::to_string(choice) + "," +
           update.substr(1) + "}}\n\n";
  }
  std::string end(const ReplyUsage& usage) override {
    Json fields = {{"delta", ending_}, {"usage", usage_of(usage)}};
    if (!session_.is_null()) fields["session"] = session_;
    return event("message_delta", std::move(fields)) + event("message_stop", Json::object());
  }
  std::string error(const ApiError& error) override {
    return "event: error\ndata: " + dump(anthropic_error(error, options_.request_id)) + "\n\n";
  }
  std::string ping() const override { return event("ping", Json::object()); }

 private:
  enum class Block { kNone, kThinking, kText, kCall };

  static std::string event(const std::string& type, const Json& fields) {
    Json data = {{"type", type}};
    data.update(fields);
    return "event: " + type + "\ndata: " + dump(data) + "\n\n";
  }

  static Json usage_of(const ReplyUsage& usage) {
    Json out = {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
                {"cache_creation_input_tokens", 0},
                {"cache_read_input_tokens", usage.cached_tokens},
                {"output_tokens", usage.completion_tokens}};
    add_origin(usage, out);
    if (!usage.method.empty()) {
      out["evicted_tokens"] = usage.evicted_tokens;
      out["cache_method"] = usage.method;
    }
    return out;
  }

  Json message(Json content) const {
    return {{"id", options_.head.id},        {"type", "message"},
            {"role", "assistant"},           {"model", options_.head.model},
            {"content", std::move(content)}, {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  // Chat templates have stop strings, too: those end a turn.
  Json ending(Finish finish, const std::string& word, bool calls) const {
    const bool stopped = !word.empty() && std::ranges::find(options_.stop, word) != options_.stop.end();
    const char* const reason = finish == Finish::kLength ? "max_tokens"
                               : stopped                 ? "stop_sequence"
                               : calls                   ? "tool_use"
                                                         : "end_turn";
    return {{"stop_reason", reason}, {"stop_sequence", stopped ? Json(word) : Json(nullptr)}};
  }

  // The events of the open block.
  std::string block_event(const std::string& type, const char* name, Json value) const {
    Json fields = {{"index", index_}};
    if (name != nullptr) fields[name] = std::move(value);
    return event(type, fields);
  }
  std::string block_delta(Json delta) const { return block_event("content_block_delta", "delta", std::move(delta)); }

  std::string open(Block block, Json start) {
    std::string out = close();
    open_ = block;
    ++index_;
    return out + block_event("content_block_start", "content_block", std::move(start));
  }
  std::string text(Block block, Json delta) {
    std::string out;
    if (open_ != block)
      out = open(block, block == Block::kText ? Json{{"type", "text"}, {"text", ""}}
                                              : Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
    return out + block_delta(std::move(delta));
  }
  std::string close() {
    if (open_ == Block::kNone) return {};
    std::string out;
    if (open_ == Block::kThinking) out = block_delta({{"type", "signature_delta"}, {"signature", kSignature}});
    open_ = Block::kNone;
    return out + block_event("content_block_stop", nullptr, nullptr);
  }

  AnthropicWriterOptions options_;
  Block open_ = Block::kNone;
  int index_ = -1;  // of the block that was opened last
  Json ending_, session_;
};

}  // namespace

Json anthropic_error(const ApiError& error, const std::string& request_id) {
  return {{"type", "error"},
          {"error", {{"type", anthropic_error_type(error.status())}, {"message", error.what()}}},
          {"request_id", request_id}};
}

std::unique_ptr<ReplyWriter> anthropic_writer(AnthropicWriterOptions options) {
  return std::make_unique<AnthropicWriter>(std::move(options));
}

}  // namespace palimpsest
