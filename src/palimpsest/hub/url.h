// Addresses (RFC 3986) as the hub and package indexes use them: http and https.
#pragma once

#include <string>
#include <string_view>

namespace palimpsest {

struct Url {
  std::string scheme, host;    // lower case; host: with brackets around an IPv6 address
  int port = 0;                // always set
  std::string user, password;  // decoded
  std::string path;            // "/a/b?query", as given; no fragment

  std::string origin() const;         // "https://host:port": what cpp-httplib's client wants
  std::string shown() const;          // for messages: without user, password and query
  std::string host_and_path() const;  // "host/a/b", for messages
  std::string file_name() const;      // the last part of the path, decoded
};

Url parse_url(std::string_view text);                       // throws Error
Url join_url(const Url& base, std::string_view reference);  // "../x", "/x", "//host/x", or a whole address
std::string percent_decoded(std::string_view text);
std::string percent_encoded(std::string_view segment);  // of a path; "/" is kept

}  // namespace palimpsest
