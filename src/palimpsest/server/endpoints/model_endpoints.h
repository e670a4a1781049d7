// Endpoints about the model: tokens, chat template, properties, slots. Names and fields are llama-server's and vLLM's.
#pragma once

#include "palimpsest/server/http/http_types.h"

namespace palimpsest {

class Service;

// All throw ApiError.
void tokenize(Service& service, const httplib::Request& in, httplib::Response& out);
void detokenize(Service& service, const httplib::Request& in, httplib::Response& out);
void apply_template(Service& service, const httplib::Request& in, httplib::Response& out);
void tokenizer_info(Service& service, httplib::Response& out);
void props(Service& service, httplib::Response& out);
void slots(Service& service, httplib::Response& out);

}  // namespace palimpsest
