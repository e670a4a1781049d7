// The writers of all APIs' replies: X_reply.cpp for the requests of X_request.h.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/server/reply/reply_writer.h"

namespace palimpsest {

// /v1/completions and /v1/chat/completions.
std::unique_ptr<ReplyWriter> openai_writer(ReplyHead head, bool logs, bool include_usage);
// /v1/responses. `echoed`: fields of the request that the response repeats. `keep`: called with the output items of an
// answered request and the whole response, before its client has them; may be empty.
std::unique_ptr<ReplyWriter> responses_writer(ReplyHead head, Json echoed,
                                              std::function<void(const Json&, const Json&)> keep);
// Ollama's /api/chat and /api/generate.
std::unique_ptr<ReplyWriter> ollama_writer(std::string model, bool chat);
// The answer to a request that only loads the model, or unloads it. `reason`: "load" or "unload".
Json ollama_loaded(const std::string& model, bool chat, const std::string& reason);

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
