#include <string>
#include <string_view>

#include "palimpsest/server/api_error.h"
#include "palimpsest/server/endpoints/endpoints.h"
#include "palimpsest/server/log.h"

namespace palimpsest {
namespace {

// One file, with style and scripts inside (CMakeLists.txt).
constexpr std::string_view kPage =
#include "server_page.inc"
    ;
constexpr std::string_view kNonce = "NONCE";

}  // namespace

// The browser runs only scripts and styles with this answer's nonce, and connects to this server only.
void show_page(const HttpCall& call) {
  if (!call.options.page) throw error_of_status(404);
  const std::string nonce = new_id("");
  std::string text(kPage);
  const std::string mark = "nonce=\"" + std::string(kNonce) + "\"";
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at))
    text.replace(at, mark.size(), "nonce=\"" + nonce + "\"");
  call.out.set_header("Content-Security-Policy",
                      "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                          "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                          "'none'; frame-ancestors 'none'");
  call.out.set_header("X-Content-Type-Options", "nosniff");
  call.out.set_header("Referrer-Policy", "no-referrer");
  call.out.set_header("Cache-Control", "no-store");
  call.out.set_content(std::move(text), "text/html; charset=utf-8");
}
}  // namespace palimpsest
