// What a client did wrong, or why it is not served: an HTTP status and OpenAI's error object.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace palimpsest {

using Json = nlohmann::ordered_json;

class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  // {"error": {"message", "type", "param", "code"}}
  Json json() const;

 private:
  int status_;
  std::string type_, param_, code_;
};

// 400: `param` is the field at fault, as in "response_format.json_schema".
// Messages may quote what a client sent, which may be long.
std::string shortened(std::string utf8);

// What is not UTF-8 in it (a path, say) becomes U+FFFD; nothing throws for that.
std::string dump(const Json& json);

template <typename... Args>
[[noreturn]] void fail_field(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, "invalid_request_error", shortened(fmt::format(format, std::forward<Args>(args)...)),
                 shortened(param));
}

// The exception that is being handled (inside a catch block) as an ApiError: our Errors are the client's (400), a full
// queue is 429, no memory is 503, anything else 500.
ApiError current_error();

// The status's own error object, for those that HTTP itself refuses (404, 405, 413, ...).
ApiError error_of_status(int status);

}  // namespace palimpsest
