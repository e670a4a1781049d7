// Ollama's API: its requests as OpenAI's, and the list of models. Its replies: reply_form.h.
#pragma once

#include "palimpsest/server/completion_request.h"

namespace httplib {
struct Response;
}

namespace palimpsest {

class Service;

struct OllamaRequest {
  bool chat = true;  // false: the prompt is raw
  Json body;         // for /v1/chat/completions, else /v1/completions
};

// "llama3:latest" names the same model as "llama3".
std::string without_latest(std::string name);

// `chat`: /api/chat, else /api/generate. Throws ApiError.
OllamaRequest read_ollama(const Json& body, bool chat, const ServedModel& model);

void ollama_tags(Service& service, httplib::Response& out);

}  // namespace palimpsest
