#include "palimpsest/memory_view.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "palimpsest/progress.h"
#include "palimpsest/system.h"
#include "palimpsest/text/utf8.h"
#include "palimpsest/text/visible_text.h"

namespace palimpsest::cli {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

// The terminal's background: COLORFGBG is "foreground;background" where it is set.
bool light_background() {
  const std::string_view colors = variable("COLORFGBG");
  const std::string_view background = colors.substr(colors.rfind(';') + 1);
  return background == "7" || background == "15";
}

double share(const MemoryMap& map, const MemoryMap::Token& token) {
  return map.heads == 0 ? 0 : std::min(1.0, static_cast<double>(token.kept + token.merged) / map.heads);
}

// Texts of tokens, whole characters, without what a terminal would execute.
template <typename Visit>
void for_each_text(const MemoryMap& map, const Vocabulary& vocabulary, Visit visit) {
  Utf8Stream utf8;
  for (const MemoryMap::Token& token : map.tokens)
    visit(token, visible_text(token.id < 0 ? std::string() : utf8.put(vocabulary.piece(token.id, true))));
}

std::string plain_text(const MemoryMap& map, const Vocabulary& vocabulary) {
  constexpr std::string_view kOpen[] = {"[-", "[~", ""}, kClose[] = {"-]", "~]", ""};
  std::string out;
  int state = 2;  // 0: forgotten, 1: in some heads, 2: in all
  for_each_text(map, vocabulary, [&](const MemoryMap::Token& token, const std::string& text) {
    const int now = token.kept + token.merged == 0 ? 0 : token.kept + token.merged < map.heads ? 1 : 2;
    if (now != state) {
      out += kClose[state];
      out += kOpen[now];
    }
    state = now;
    out += text;
  });
  out += kClose[state];
  return out;
}

// The escape sequence of a token's ink. `share`: of the heads that keep it.
std::string ink_sequence(double share, bool marked, Ink ink, bool light) {
  std::string codes = "0";
  if (marked) codes += ";4";
  if (share == 0) codes += ";9";
  if (share < 1) {
    // From a faint grey to the text's ink; perceived lightness is about linear in these numbers.
    const double grey = light ? 200 - 170 * share : 85 + 150 * share;
    if (ink == Ink::kTrueColor)
      codes += fmt::format(";38;2;{0};{0};{0}", std::lround(grey));
    else
      codes += fmt::format(";38;5;{}", 232 + std::lround(grey / 255 * 23));
  }
  return "\x1B[" + codes + "m";
}

}  // namespace

Ink ink_of_terminal() {
  if (isatty(STDERR_FILENO) == 0 || !variable("NO_COLOR").empty() || variable("TERM") == "dumb") return Ink::kPlain;
  const std::string_view colors = variable("COLORTERM");
  return colors == "truecolor" || colors == "24bit" ? Ink::kTrueColor : Ink::k256;
}

std::string memory_text(const MemoryMap& map, const Vocabulary& vocabulary, Ink ink) {
  if (ink == Ink::kPlain) return plain_text(map, vocabulary);
  const bool light = light_background();
  std::string out, last;
  for_each_text(map, vocabulary, [&](const MemoryMap::Token& token, const std::string& text) {
    std::string sequence = ink_sequence(share(map, token), token.sink || token.pinned, ink, light);
    if (sequence != last) out += last = std::move(sequence);
    out += text;
  });
  return out + "\x1B[0m";
}

std::string memory_line(const MemoryMap& map) {
  long long all = 0, partly = 0, none = 0;
  for (const MemoryMap::Token& token : map.tokens)
    ++(token.kept + token.merged == 0 ? none : token.kept + token.merged < map.heads ? partly : all);
  std::string line = fmt::format("{} tokens: {} in all {} heads, {} in some, {} forgotten; keys and values {}",
                                 thousands(std::ssize(map.tokens)), thousands(all), map.heads, thousands(partly),
                                 thousands(none), human_bytes(map.bytes.cache));
  if (map.bytes.limit > 0) line += fmt::format(", limit {}", human_bytes(map.bytes.limit));
  return line + fmt::format(", full cache {}", human_bytes(map.bytes.full));
}

std::string memory_html(const MemoryMap& map, const Vocabulary& vocabulary, const std::string& method) {
  const auto escaped = [](std::string_view text) {
    std::string out;
    for (const char c : text)
      out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
    return out;
  };
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n<style>\n"
      ":root {{ color-scheme: light dark; --ink: #111; --faint: #ccc; --mark: #0072b2; background: #fdfcf8; }}\n"
      "@media (prefers-color-scheme: dark) {{ :root {{ --ink: #f2efe6; --faint: #4a4a4a; --mark: #56b4e9;"
      " background: #16181c; }} }}\n"
      "body {{ max-width: 46rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); font: 16px/1.6 serif; }}\n"
      "header {{ font: 14px/1.5 sans-serif; }}\n"
      "pre {{ font: inherit; white-space: pre-wrap; overflow-wrap: anywhere; }}\n"
      "pre span {{ color: color-mix(in srgb, var(--ink) var(--k), var(--faint)); }}\n"
      ".gone {{ text-decoration: line-through 1px; }} .mark {{ border-bottom: 2px solid var(--mark); }}\n"
      "</style>\n<header><strong>{0}</strong><br>{1}<br>\nFaint: kept by fewer heads. Struck through: forgotten. "
      "Underlined: protected.</header>\n<pre>",
      escaped(method), escaped(memory_line(map)));
  for_each_text(map, vocabulary, [&](const MemoryMap::Token& token, const std::string& text) {
    if (text.empty()) return;
    std::string title = fmt::format("{} of {} heads", token.kept + token.merged, map.heads);
    if (token.merged > 0) title += fmt::format(", {} merged", token.merged);
    if (token.evicted_at != kNoPosition) title += fmt::format(", evicted after {} tokens", token.evicted_at);
    const bool evicted = token.kept + token.merged == 0;
    fmt::format_to(std::back_inserter(out), "<span style=\"--k:{:.0f}%\" class=\"{}{}\" title=\"{}\">{}</span>",
                   100 * share(map, token), evicted ? "gone" : "", token.sink || token.pinned ? " mark" : "", title,
                   escaped(text));
  });
  return out + "</pre>\n</html>\n";
}

}  // namespace palimpsest::cli
