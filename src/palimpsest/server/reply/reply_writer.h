// The form of replies in one API: complete objects and parts of a stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "palimpsest/server/reply/reply_parts.h"

namespace palimpsest {

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) = 0;

  // A stream: begin() once, begin_choice() for each choice, piece() for each event, end() or error(). All return the
  // bytes to send.
  virtual const char* stream_type() const { return "text/event-stream"; }
  virtual std::string begin() { return {}; }
  virtual std::string begin_choice(int) { return {}; }
  // `calls`: the reply has called a tool by now. `session`: null, or the saved session, with the last event. `usage`:
  // with the last event of all choices, else nullptr.
  virtual std::string piece(const Event& event, const ReplyDelta& delta, bool calls, const Json& session,
                            const ReplyUsage* usage) = 0;
  virtual std::string memory(int choice, const std::string& event) {  // memory_event()
    static_cast<void>(choice), static_cast<void>(event);
    return {};
  }
  virtual std::string progress(int choice, const PromptProgress& progress, long long tokens, double ms) {
    static_cast<void>(choice), static_cast<void>(progress), static_cast<void>(tokens), static_cast<void>(ms);
    return {};  // `tokens`: of the prompt; `ms`: since the request began
  }
  // Before a piece, if CompletionRequest::timings.
  virtual void so_far(const ReplyUsage& usage) { static_cast<void>(usage); }
  virtual std::string end(const ReplyUsage& usage) = 0;
  virtual std::string error(const ApiError& error) = 0;
  virtual std::string ping() const { return ": ping\n\n"; }  // clients ignore it
};

// /v1/completions and /v1/chat/completions.
std::unique_ptr<ReplyWriter> openai_writer(ReplyHead head, bool logs, bool include_usage);
// /v1/responses. `echoed`: fields of the request that the response repeats. `keep`: called with the output items of an
// answered request and the whole response, before its client has them; may be empty.
std::unique_ptr<ReplyWriter> responses_writer(ReplyHead head, Json echoed,
                                              std::function<void(const Json&, const Json&)> keep);
// Ollama's /api/chat and /api/generate.
std::unique_ptr<ReplyWriter> ollama_writer(std::string model, bool chat);

// Anthropic's /v1/messages.
struct AnthropicWriterOptions {
  ReplyHead head;
  std::string request_id;         // of errors
  std::vector<std::string> stop;  // the client's stop sequences
  long long prompt_tokens = 0;
};
std::unique_ptr<ReplyWriter> anthropic_writer(AnthropicWriterOptions options);
// {"type": "error", "error": {"type", "message"}, "request_id"}
Json anthropic_error(const ApiError& error, const std::string& request_id);

// llama-server's /completion.
struct LlamaWriterOptions {
  struct Prompt {
    std::string text;
    long long tokens = 0;
  };
  std::string model;
  std::vector<Prompt> prompts;                    // of each choice
  Json settings;                                  // generation_settings
  bool return_tokens = false;                     // of whole answers; parts of a stream have them
  int context = 0;                                // in tokens; 0: not limited
  std::vector<std::string> response_fields = {};  // of the last object; empty: all
};
std::unique_ptr<ReplyWriter> llama_writer(LlamaWriterOptions options);

}  // namespace palimpsest
