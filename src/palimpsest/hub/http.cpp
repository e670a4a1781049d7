#include "palimpsest/hub/http.h"

#include <fmt/format.h>
#include <httplib.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/core/version.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

constexpr int kMaxRedirects = 10;

std::string from_environment(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return value;
  return {};
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// no_proxy: "localhost,.example.org,10.0.0.1" or "*"
bool is_exempt(std::string_view host, std::string_view list) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string entry = lower_case(list.substr(0, end));
    list.remove_prefix(std::min(list.size(), end + 1));
    std::erase(entry, ' ');
    if (entry == "*") return true;
    if (entry.starts_with('.')) entry.erase(0, 1);
    if (!entry.empty() && (host == entry || host.ends_with("." + entry))) return true;
  }
  return false;
}

// Where systems keep their authorities, if OpenSSL was built for another one.
std::string authorities() {
  if (!from_environment({"SSL_CERT_FILE", "SSL_CERT_DIR"}).empty()) return {};  // OpenSSL reads them
  if (std::string bundle = from_environment({"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}); !bundle.empty()) return bundle;
  std::error_code ignored;
  if (std::filesystem::exists("/etc/ssl/certs", ignored)) return {};
  for (const char* file : {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"})
    if (std::filesystem::exists(file, ignored)) return file;
  return {};
}

std::string problem_of(httplib::Error error, const Url& url, const std::string& proxy) {
  const std::string where = url.host_and_path();
  switch (error) {
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
    case httplib::Error::ProxyConnection:
      if (!proxy.empty())
        return fmt::format("{} cannot be reached through the proxy {}: check https_proxy, or list the host in no_proxy",
                           url.host, parse_url(proxy).shown());
      return fmt::format("{} cannot be reached: check the network, or name a proxy in https_proxy", url.host);
    case httplib::Error::SSLServerVerification:
    case httplib::Error::SSLServerHostnameVerification:
    case httplib::Error::SSLLoadingCerts:
      return fmt::format(
          "the certificate of {} is not trusted: name the file of your network's authority in SSL_CERT_FILE", url.host);
    case httplib::Error::SSLConnection:
      return fmt::format("{} does not complete a TLS connection: check the address and the network", url.host);
    default:
      return fmt::format("the connection to {} broke ({}): try again", where, httplib::to_string(error));
  }
}

}  // namespace

std::string HttpAnswer::header(const std::string& name) const {
  const auto at = headers.find(name);
  return at == headers.end() ? "" : at->second;
}

bool Http::has_tls() {
#ifdef CPPHTTPLIB_OPENSSL_SUPPORT
  return true;
#else
  return false;
#endif
}

std::string proxy_for(const Url& url) {
  if (is_exempt(url.host, from_environment({"no_proxy", "NO_PROXY"}))) return {};
  std::string proxy = url.scheme == "https" ? from_environment({"https_proxy", "HTTPS_PROXY"})
                                            : from_environment({"http_proxy"});  // HTTP_PROXY: a CGI client's header
  if (proxy.empty()) proxy = from_environment({"all_proxy", "ALL_PROXY"});
  if (!proxy.empty() && proxy.find("://") == std::string::npos) proxy.insert(0, "http://");
  return proxy;
}

std::string basic_authorization(const std::string& user, const std::string& password) {
  return httplib::make_basic_authentication_header(user, password).second;
}

HttpAnswer Http::get_once(const Url& url, const HttpHeaders& headers, const Head& head, const Body& body) const {
  if (url.scheme == "https" && !has_tls())
    fail(
        "{}: this build has no TLS (cpp-httplib without OpenSSL): fetch the file with another program, and name it "
        "with -m",
        url.shown());
  httplib::Client client(url.origin());
  client.set_connection_timeout(options_.connect_timeout);
  client.set_read_timeout(options_.read_timeout);
  client.set_follow_location(false);
  client.set_path_encode(false);
  client.set_decompress(true);
  const std::string proxy = proxy_for(url);
  if (!proxy.empty()) {
    const Url at = parse_url(proxy);
    client.set_proxy(at.host, at.port);
    if (!at.user.empty()) client.set_proxy_basic_auth(at.user, at.password);
  }
#ifdef CPPHTTPLIB_OPENSSL_SUPPORT
  if (url.scheme == "https")
    if (const std::string file = options_.ca_file.empty() ? authorities() : options_.ca_file; !file.empty())
      client.set_ca_cert_path(file);
#endif
  httplib::Headers sent = {{"User-Agent", fmt::format("palimpsest/{}", version())}};
  for (const auto& [name, value] : headers) sent.emplace(name, value);

  HttpAnswer answer;
  answer.from = url;
  std::exception_ptr thrown;  // not through the library
  const auto guarded = [&](const auto& goes_on) {
    if (is_redirect(answer.status)) return true;
    try {
      answer.stopped = !goes_on();
    } catch (...) {
      thrown = std::current_exception();
      answer.stopped = true;
    }
    return !answer.stopped;
  };
  const auto read_head = [&](const httplib::Response& response) {
    answer.status = response.status;
    for (const auto& [name, value] : response.headers) answer.headers[lower_case(name)] = value;
    return guarded([&] { return head(answer); });
  };
  const auto read_body = [&](const char* data, std::size_t size) {
    return guarded([&] { return body({data, size}); });
  };
  const httplib::Result result = client.Get(url.path, sent, read_head, read_body);
  if (thrown) std::rethrow_exception(thrown);
  if (!result && !answer.stopped) {
    answer.status = 0;
    answer.problem = problem_of(result.error(), url, proxy);
  }
  return answer;
}

HttpAnswer Http::get(const Url& url, const HttpHeaders& headers, const Head& head, const Body& body) const {
  Url at = url;
  HttpHeaders sent = headers;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    HttpAnswer answer = get_once(at, sent, head, body);
    if (!is_redirect(answer.status)) return answer;
    const std::string to = answer.header("location");
    if (to.empty()) fail("{} redirects to nowhere: try again later", at.shown());
    const Url next = join_url(at, to);
    if (at.scheme == "https" && next.scheme != "https")
      fail("{} redirects to {}, which is not encrypted: refused", at.shown(), next.shown());
    if (next.origin() != at.origin()) sent.erase("authorization");
    at = next;
  }
  fail("{} redirects more than {} times: check the address", url.shown(), kMaxRedirects);
}

HttpAnswer Http::get_text(const Url& url, const HttpHeaders& headers, std::string& text) const {
  text.clear();
  HttpAnswer answer = get(
      url, headers, [](const HttpAnswer&) { return true; },
      [&](std::string_view piece) {
        text += piece;
        return text.size() <= kMaxText;
      });
  if (answer.stopped)
    fail("{} answers with more than {} MiB: this is not a list of files", url.shown(), kMaxText >> 20);
  if (answer.status == 0) fail("{}", answer.problem);
  return answer;
}

}  // namespace palimpsest
