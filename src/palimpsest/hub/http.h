// HTTP GET over cpp-httplib: redirects, TLS, and the proxy that the environment names (https_proxy, http_proxy,
// all_proxy, no_proxy; curl's rules).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "palimpsest/hub/url.h"

namespace palimpsest {

struct HttpOptions {
  std::string ca_file;  // authorities to trust; empty: $SSL_CERT_FILE, $SSL_CERT_DIR, $REQUESTS_CA_BUNDLE, the system's
  std::chrono::seconds connect_timeout{15}, read_timeout{60};
};

using HttpHeaders = std::map<std::string, std::string>;  // names in lower case

// What came back, or why nothing did.
struct HttpAnswer {
  int status = 0;        // 0: no answer, or one that broke off
  bool stopped = false;  // by the caller's functions
  std::string problem;   // where status is 0: a sentence that says what to do
  HttpHeaders headers;
  Url from;  // after redirects
  std::string header(const std::string& name) const;
};

class Http {
 public:
  explicit Http(HttpOptions options = {}) : options_(std::move(options)) {}

  // Sends `headers`; Authorization is not sent to another origin than the first. A redirect from https to http is
  // refused. `head` sees the status and the headers of the last answer, before `body` gets its bytes; both return false
  // to stop.
  using Head = std::function<bool(const HttpAnswer&)>;
  using Body = std::function<bool(std::string_view)>;
  HttpAnswer get(const Url& url, const HttpHeaders& headers, const Head& head, const Body& body) const;

  // A text of at most kMaxText bytes. The answer's status may be any; throws Error if there is no answer.
  HttpAnswer get_text(const Url& url, const HttpHeaders& headers, std::string& text) const;
  static constexpr std::size_t kMaxText = std::size_t{64} << 20;

  static bool has_tls();  // whether https is supported by this build

 private:
  HttpAnswer get_once(const Url& url, const HttpHeaders& headers, const Head& head, const Body& body) const;
  HttpOptions options_;
};

// The proxy for an address, by the environment; empty: none.
std::string proxy_for(const Url& url);

// "user:password" as a value of the header Authorization.
std::string basic_authorization(const std::string& user, const std::string& password);

}  // namespace palimpsest
