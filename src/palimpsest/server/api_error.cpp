#include "palimpsest/server/api_error.h"

#include <new>

#include "palimpsest/core/error.h"
#include "palimpsest/engine/scheduler/scheduler.h"

namespace palimpsest {
namespace {

constexpr const char* kInternal = "internal error: see the server's log";

}  // namespace

Json ApiError::json() const {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json error = {{"message", what()}, {"type", type_}, {"param", or_null(param_)}, {"code", or_null(code_)}};
  for (const auto& [name, value] : details_) error[name] = value;
  return {{"error", std::move(error)}};
}

std::string shortened(std::string utf8) {
  constexpr std::size_t kMax = 1000;
  if (utf8.size() <= kMax) return utf8;
  std::size_t end = kMax;
  while (end > 0 && (utf8[end] & 0xC0) == 0x80) --end;
  utf8.resize(end);
  return utf8 + " ...";
}

std::string without_folders(std::string_view text) {
  constexpr std::string_view kBefore = " \t\n'\"=:(<,", kAfter = " \t\n'\",;:)>";
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '/' || (i > 0 && kBefore.find(text[i - 1]) == kBefore.npos)) {
      out += text[i++];
      continue;
    }
    const std::string_view path = text.substr(i, text.find_first_of(kAfter, i) - i);
    const std::string_view file = path.substr(path.rfind('/') + 1);
    out += file.empty() ? path : file;
    i += path.size();
  }
  return out;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ApiError current_error() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const QueueFull& full) {
    return {429, "rate_limit_error", full.what(), "", "queue_full"};
  } catch (const Error& error) {
    return ApiError(400, "invalid_request_error", shortened(without_folders(error.what()))).set_log_text(error.what());
  } catch (const std::bad_alloc&) {
    return {503, "server_error", "out of memory: try again later, or with less"};
  } catch (const std::exception& error) {
    return ApiError(500, "server_error", kInternal).set_log_text(error.what());
  } catch (...) {
    return {500, "server_error", kInternal};
  }
}

ApiError error_of_status(int status) {
  switch (status) {
    case 404:
      return {404, "invalid_request_error", "unknown path: docs/server.md lists the endpoints"};
    case 405:
      return {405, "invalid_request_error", "this endpoint does not support this HTTP method"};
    case 413:
      return {413, "invalid_request_error", "the body is longer than the server takes (--max-body)"};
    case 414:
      return {414, "invalid_request_error", "the address is too long"};
    default:
      return {status, status < 500 ? "invalid_request_error" : "server_error",
              fmt::format("HTTP status {}: the request could not be read", status)};
  }
}

}  // namespace palimpsest
