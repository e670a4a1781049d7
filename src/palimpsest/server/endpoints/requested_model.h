// Which of many models a request wants: `model` in its body or, without a body, in its query.
#pragma once

#include <memory>

#include "palimpsest/server/http/http_types.h"
#include "palimpsest/server/model_host.h"

namespace palimpsest {

// Its service, loaded; Ollama's `keep_alive` is set. Throws ApiError.
std::shared_ptr<Service> requested_model(ModelHost& host, const httplib::Request& in);

}  // namespace palimpsest
