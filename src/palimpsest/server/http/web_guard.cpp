#include "palimpsest/server/http/web_guard.h"

#include <arpa/inet.h>
#include <httplib.h>

#include <algorithm>
#include <cctype>

#include "palimpsest/core/letter_case.h"
#include "palimpsest/server/api_error.h"

namespace palimpsest {
namespace {

// "[::1]:80" -> "::1", "a.example.:80" -> "a.example"
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower_case(host.substr(1, host.find(']') == host.npos ? 0 : host.find(']') - 1));
  host = host.substr(0, host.find(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower_case(host);
}

bool is_address(const std::string& name) {
  in6_addr ignored{};
  return inet_pton(AF_INET, name.c_str(), &ignored) == 1 || inet_pton(AF_INET6, name.c_str(), &ignored) == 1;
}

// "https://a.example:80" -> "a.example:80"
std::string authority_of(std::string_view origin) {
  const auto at = origin.find("://");
  return at == origin.npos ? std::string() : lower_case(origin.substr(at + 3));
}

}  // namespace

bool is_allowed_host(std::string_view host, const std::vector<std::string>& allowed) {
  if (host.empty()) return true;
  const std::string name = host_name(host);
  if (is_address(name) || name.find('.') == std::string::npos) return true;
  if (std::ranges::any_of(allowed, [&](const std::string& each) { return each == "*" || host_name(each) == name; }))
    return true;
  return name.ends_with(".localhost") || name.ends_with(".local") || name.ends_with(".internal");
}

bool is_own_origin(const httplib::Request& in) {
  const std::string site = in.get_header_value("Sec-Fetch-Site"), origin = in.get_header_value("Origin");
  if (site == "same-origin") return true;
  // A link to the server is followed without an origin.
  if (origin.empty()) return site.empty() || site == "none" || in.method == "GET" || in.method == "HEAD";
  const std::string authority = authority_of(origin);
  // A proxy may pass its own name as the host. Pages cannot set this header without asking first.
  return !authority.empty() && (authority == lower_case(in.get_header_value("Host")) ||
                                authority == lower_case(in.get_header_value("X-Forwarded-Host")));
}

void check_content_type(const httplib::Request& in) {
  const std::string given = lower_case(in.get_header_value("Content-Type"));
  std::string type = given.substr(0, given.find(';'));
  type.erase(type.find_last_not_of(" \t") + 1);
  if (type.empty() && !in.has_header("Sec-Fetch-Site") && !in.has_header("Origin")) return;
  if (type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"))) return;
  const bool form = type == "application/x-www-form-urlencoded";
  if (form && !in.has_header("Sec-Fetch-Site") && !in.has_header("Origin")) return;
  throw ApiError(415, "invalid_request_error",
                 type.empty() ? "the body has no Content-Type: send Content-Type: application/json"
                              : fmt::format("Content-Type '{}' is not supported: send Content-Type: application/json",
                                            shortened(type)));
}

}  // namespace palimpsest
