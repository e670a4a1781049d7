#include "palimpsest/server/http/access.h"

#include <httplib.h>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/http/api_keys.h"
#include "palimpsest/server/http/web_guard.h"

namespace palimpsest {
namespace {

// Whether a page of this origin may call the server; sets the headers that say so.
bool allow_origin(const std::string& allowed, const httplib::Request& in, httplib::Response& out) {
  const std::string origin = in.get_header_value("Origin");
  if (allowed.empty() || origin.empty()) return false;
  out.set_header("Vary", "Origin");
  if (allowed != "*" && allowed != origin) return false;
  out.set_header("Access-Control-Allow-Origin", allowed == "*" ? "*" : origin);
  out.set_header("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  return true;
}

// Browsers ask with OPTIONS, without a key.
void answer_preflight(const httplib::Request& in, httplib::Response& out) {
  out.set_header("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  const std::string headers = in.get_header_value("Access-Control-Request-Headers");
  out.set_header("Access-Control-Allow-Headers", headers.empty() ? "Authorization, Content-Type" : headers);
  out.set_header("Access-Control-Max-Age", "86400");
  out.status = 204;
}

}  // namespace

bool admit(const ServerOptions& options, const httplib::Request& in, httplib::Response& out) {
  const bool from_page = allow_origin(options.cors_origin, in, out);
  if (from_page && in.method == "OPTIONS") {
    answer_preflight(in, out);
    return false;
  }
  if (in.path == "/health" || in.path == "/v1/health") return true;
  const std::vector<std::string>& keys = options.api_keys;
  const std::string host = in.get_header_value("Host");
  // A page that is not the server's own has no key.
  if (keys.empty() && !is_allowed_host(host, options.allowed_hosts))
    throw ApiError(403, "permission_error",
                   fmt::format("this server is not known as '{}': start it with --allowed-host {}, or call it by its "
                               "address",
                               shortened(host), shortened(host)),
                   "", "host_not_allowed");
  if (!from_page && !is_own_origin(in))
    throw ApiError(403, "permission_error",
                   "web pages of other sites may not call this server: start it with --cors-origin ORIGIN to allow one",
                   "", "origin_not_allowed");
  if (!keys.empty() && in.path != "/" && number_of_key(in, keys) == 0)
    throw ApiError(401, "authentication_error",
                   "this server requires an API key: Authorization: Bearer KEY, or X-Api-Key: KEY", "",
                   "invalid_api_key");
  return true;
}

}  // namespace palimpsest
