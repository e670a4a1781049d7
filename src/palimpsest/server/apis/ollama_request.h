// The requests of Ollama's /api/chat and /api/generate.
#pragma once

#include "palimpsest/server/request/completion_request.h"

namespace palimpsest {

struct OllamaRequest {
  CompletionInput input;
  // Without a prompt, a request only loads or unloads the model: here both do nothing. "load", "unload", or "".
  std::string only = {};
};

// "llama3:latest" names the same model as "llama3".
std::string without_latest(std::string name);

// `chat`: /api/chat, else /api/generate. Throws ApiError.
OllamaRequest read_ollama(const Json& body, bool chat, const ServedModel& model);

}  // namespace palimpsest
