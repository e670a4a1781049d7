#include "palimpsest/hub/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

int default_port(std::string_view scheme) {
  return scheme == "https" ? 443 : 80;
}

// A request line and a header have no room for these.
bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7F'; });
}

// RFC 3986, 5.2.4
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  bool slash_at_end = false;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    const std::string_view part = path.substr(at + 1, end - at - 1);
    slash_at_end = part.empty() || part == "." || part == "..";
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (!part.empty() && part != ".") {
      parts.push_back(part);
    }
    at = end;
  }
  std::string out;
  for (const std::string_view part : parts) out.append("/").append(part);
  if (slash_at_end || out.empty()) out += '/';
  return out;
}

}  // namespace

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 && hex_value(text[i + 2]) >= 0) {
      out += static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string percent_encoded(std::string_view segment) {
  std::string out;
  for (const char c : segment) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("/-._~").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

std::string Url::origin() const {
  return fmt::format("{}://{}:{}", scheme, host, port);
}

std::string Url::host_and_path() const {
  const std::string number = port == default_port(scheme) ? "" : fmt::format(":{}", port);
  return host + number + path.substr(0, path.find('?'));
}

std::string Url::shown() const {
  return scheme + "://" + host_and_path();
}

std::string Url::file_name() const {
  const std::string_view all = std::string_view(path).substr(0, path.find('?'));
  return percent_decoded(all.substr(all.rfind('/') + 1));
}

Url parse_url(std::string_view text) {
  const std::string_view given = text;
  Url url;
  const auto colon = text.find("://");
  if (colon == text.npos) fail("'{}' is not an address: write https://HOST/PATH", given);
  url.scheme = lower_case(text.substr(0, colon));
  if (url.scheme != "http" && url.scheme != "https") fail("'{}': addresses begin with https:// or http://", given);
  text.remove_prefix(colon + 3);
  text = text.substr(0, text.find('#'));
  if (has_control(text)) fail("'{}' is not an address: it has spaces or control characters", given);
  const std::size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  url.path = text.substr(end);
  if (url.path.empty() || url.path.front() != '/') url.path.insert(0, "/");
  if (const auto at = authority.rfind('@'); at != authority.npos) {
    const std::string_view who = authority.substr(0, at);
    const auto split = who.find(':');
    url.user = percent_decoded(who.substr(0, split));
    if (split != who.npos) url.password = percent_decoded(who.substr(split + 1));
    authority.remove_prefix(at + 1);
  }
  url.port = default_port(url.scheme);
  const auto bracket = authority.rfind(']');
  const auto number = authority.find(':', bracket == authority.npos ? 0 : bracket);
  if (number != authority.npos) {
    const std::string_view digits = authority.substr(number + 1);
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc{} || stop != digits.data() + digits.size() || url.port < 1 || url.port > 65535)
      fail("'{}': the port is not a number from 1 to 65535", given);
  }
  url.host = lower_case(authority.substr(0, number));
  if (url.host.empty()) fail("'{}' is not an address: it names no host", given);
  return url;
}

Url join_url(const Url& base, std::string_view reference) {
  reference = reference.substr(0, reference.find('#'));
  if (is_address(reference)) return parse_url(reference);
  if (reference.starts_with("//")) return parse_url(base.scheme + ":" + std::string(reference));
  if (has_control(reference)) fail("{} refers to an address with spaces or control characters", base.shown());
  Url out = base;
  const std::size_t query = std::min(reference.find('?'), reference.size());
  std::string path(reference.substr(0, query));
  const std::string base_path = base.path.substr(0, base.path.find('?'));
  if (path.empty())
    path = base_path;
  else if (path.front() != '/')
    path.insert(0, base_path.substr(0, base_path.rfind('/') + 1));
  out.path = without_dots(path) + std::string(reference.substr(query));
  return out;
}

}  // namespace palimpsest
