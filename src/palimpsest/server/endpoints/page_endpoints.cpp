#include "palimpsest/server/endpoints/page_endpoints.h"

#include <httplib.h>

#include <string>
#include <string_view>

#include "palimpsest/core/error.h"
#include "palimpsest/evict/method.h"
#include "palimpsest/server/api_error.h"
#include "palimpsest/server/http/json_response.h"
#include "palimpsest/server/log.h"
#include "palimpsest/server/service.h"

namespace palimpsest {
namespace {

// One file, with style and scripts inside (CMakeLists.txt).
constexpr std::string_view kPage =
#include "server_page.inc"
    ;
constexpr std::string_view kNonce = "NONCE";

}  // namespace

// The browser runs only scripts and styles with this answer's nonce, and connects to this server only.
void page(const httplib::Request&, httplib::Response& out) {
  const std::string nonce = new_id("");
  std::string text(kPage);
  const std::string mark = "nonce=\"" + std::string(kNonce) + "\"";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at))
    text.replace(at, mark.size(), "nonce=\"" + nonce + "\"");
  out.set_header("Content-Security-Policy", "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" +
                                                nonce +
                                                "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                                                "'none'; frame-ancestors 'none'");
  out.set_header("X-Content-Type-Options", "nosniff");
  out.set_header("Referrer-Policy", "no-referrer");
  out.set_header("Cache-Control", "no-store");
  out.set_content(std::move(text), "text/html; charset=utf-8");
}

void list_methods(Service& service, httplib::Response& out) {
  Json list = Json::array();
  for (const MethodRow& row : methods()) {
    if (!row.preset.cache) continue;
    Json method = {{"id", row.name},         {"object", "method"},          {"paper", row.paper},
                   {"summary", row.summary}, {"budget", row.preset.budget}, {"error", nullptr}};
    try {
      method["budget"] = service.scheduler().resolved(row.preset).budget;
    } catch (const Error& error) {
      method["error"] = error.what();
    }
    list.push_back(std::move(method));
  }
  reply_json({{"object", "list"}, {"data", std::move(list)}}, out);
}

}  // namespace palimpsest
