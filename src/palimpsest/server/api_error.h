// An error response: HTTP status and OpenAI's error object.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
  // For the log, if it is not for the client; else what().
  std::string log_text() const { return log_text_.empty() ? what() : log_text_; }
  ApiError& set_log_text(std::string text) {
    log_text_ = std::move(text);
    return *this;
  }
  ApiError& add_detail(std::string name, long long value) {
    details_.emplace_back(std::move(name), value);
    return *this;
  }
  const std::string& type() const { return type_; }
  // {"error": {"message", "type", "param", "code"}}, and the details
  Json json() const;

 private:
  int status_;
  std::string type_, param_, code_, log_text_;
  std::vector<std::pair<std::string, long long>> details_;
};

// Truncates error messages, which may quote long input from the client, to about 1,000 bytes.
std::string shortened(std::string utf8);

// Errors of the engine may name files of this machine: absolute paths become file names.
std::string without_folders(std::string_view text);

// Replaces invalid UTF-8 (in a path, for instance) by U+FFFD instead of throwing.
std::string dump(const Json& json);

// Throws a 400. `param`: the invalid field, as in "response_format.json_schema".
template <typename... Args>
[[noreturn]] void fail_field(const std::string& param, fmt::format_string<Args...> format, Args&&... args) {
  throw ApiError(400, "invalid_request_error", shortened(fmt::format(format, std::forward<Args>(args)...)),
                 shortened(param));
}

// The current exception (call inside a catch block) as an ApiError: Error maps to 400, QueueFull to 429, bad_alloc to
// 503, anything else to 500 (its text is for the log only).
ApiError current_error();

// The error object for requests that the HTTP library refuses (404, 405, 413, ...).
ApiError error_of_status(int status);

}  // namespace palimpsest
