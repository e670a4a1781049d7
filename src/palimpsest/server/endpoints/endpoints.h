// The handlers of all endpoints; routes.cpp has their paths. They throw ApiError or Error.
#pragma once

#include "palimpsest/server/http/http_call.h"

namespace palimpsest {

// Whether the client expects Anthropic's API: by the path, or by a header that its clients send with all requests.
bool is_anthropic(const httplib::Request& in);

// completion_endpoints.cpp: each API reads its request, and answers in its form.
void complete_chat(const HttpCall& call);
void complete_text(const HttpCall& call);
void count_chat_tokens(const HttpCall& call);
void create_response(const HttpCall& call);
void count_response_tokens(const HttpCall& call);
void show_response(const HttpCall& call);
void remove_response(const HttpCall& call);
void create_message(const HttpCall& call);
void count_message_tokens(const HttpCall& call);
void llama_completion(const HttpCall& call);
void llama_infill(const HttpCall& call);
void ollama_chat(const HttpCall& call);
void ollama_generate(const HttpCall& call);

// embedding_endpoints.cpp
void embed(const HttpCall& call);
void rerank(const HttpCall& call);
void ollama_embed(const HttpCall& call);
void ollama_embeddings(const HttpCall& call);

// model_endpoints.cpp: the model and the server's state. Names and fields are llama-server's and vLLM's.
void list_models(const HttpCall& call);
void show_model(const HttpCall& call);
void load_model(const HttpCall& call);
void unload_model(const HttpCall& call);
void list_methods(const HttpCall& call);
void tokenize(const HttpCall& call);
void detokenize(const HttpCall& call);
void apply_template(const HttpCall& call);
void show_tokenizer(const HttpCall& call);
void show_properties(const HttpCall& call);
void list_slots(const HttpCall& call);
void show_health(const HttpCall& call);
void show_metrics(const HttpCall& call);

// ollama_model_endpoints.cpp
void ollama_tags(const HttpCall& call);
void ollama_ps(const HttpCall& call);
void ollama_show(const HttpCall& call);
void ollama_version(const HttpCall& call);

// session_endpoints.cpp
void list_sessions(const HttpCall& call);
void remove_session(const HttpCall& call);
void show_session_memory(const HttpCall& call);
void edit_session(const HttpCall& call);
void close_session(const HttpCall& call);

// page_endpoints.cpp: chat and the view of memory (server/page).
void show_page(const HttpCall& call);

}  // namespace palimpsest
