// Fields that requests of several APIs have.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/request/completion_request.h"
#include "palimpsest/server/request/json_fields.h"

namespace palimpsest {

// A text or a list of texts: at most 16.
void read_stop(JsonFields& fields, const char* name, std::vector<std::string>& out);

inline constexpr std::size_t kMaxSessionId = 256;  // bytes of Request::session

// {"type": "ephemeral", "ttl": "5m"}: Request::pin becomes at least this.
void read_cache_control(JsonFields& fields, Request& out);

// This engine's own: cache, cache_prompt, n_cache_reuse, session, memory_events, speculative; and what agents say:
// priority, prompt_cache_key, prompt_cache_retention, cache_control. After `stream` is read. Throws ApiError.
void read_cache_fields(JsonFields& fields, const ServedModel& model, CompletionInput& out);

// timings_per_token, return_progress.
void read_stream_reports(JsonFields& fields, CompletionRequest& out);

// "h2o:budget=512" or {"method": "h2o", "budget": 512, ...}: any key of parse_method, but for "pin": true or false.
// Options that name a file (split, scorer) are refused.
Method parse_cache(const Json& value, const Method& fallback);

}  // namespace palimpsest
