// Ollama's endpoints about models: this server has one, which is always loaded.
#pragma once

#include <string>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

class Service;

void ollama_tags(Service& service, httplib::Response& out);                              // /api/tags
void ollama_ps(Service& service, httplib::Response& out);                                // /api/ps
void ollama_show(Service& service, const httplib::Request& in, httplib::Response& out);  // /api/show
// The answer to a request that only loads the model, or unloads it. `reason`: "load" or "unload".
Json ollama_loaded(const std::string& model, bool chat, const std::string& reason);

}  // namespace palimpsest
