#include "palimpsest/eval/plain_text.h"

#include <string_view>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

struct Mark {
  std::size_t begin = std::string::npos, end = 0;  // including the asterisks
  explicit operator bool() const { return begin != std::string::npos; }
};

// "*** START OF THE PROJECT GUTENBERG EBOOK title ***": the space after the asterisks is optional, the title may span
// several lines. The word after START distinguishes it from "*** START: FULL LICENSE ***".
Mark find_mark(std::string_view text, std::string_view word, std::size_t from) {
  constexpr std::size_t kLongestTitle = 600;
  for (std::size_t at = text.find("***", from); at != std::string_view::npos; at = text.find("***", at + 1)) {
    std::size_t next = text.find_first_not_of("* ", at);
    if (next == std::string_view::npos) break;
    if (text.substr(next, word.size()) != word || text.substr(next + word.size(), 4) != " OF ") continue;
    const std::size_t close = text.find("***", next);
    if (close == std::string_view::npos || close - next > kLongestTitle) continue;
    const std::size_t end = text.find_first_not_of('*', close);
    return {at, end == std::string_view::npos ? text.size() : end};
  }
  return {};
}

void cut_gutenberg(PlainText& plain) {
  const Mark start = find_mark(plain.text, "START", 0);
  const Mark end = find_mark(plain.text, "END", start ? start.end : 0);
  if (!start || !end)
    fail("no '*** {} OF ... ***' line of Project Gutenberg in this text: leave out --gutenberg",
         start ? "END" : "START");
  plain.done.push_back(fmt::format("cut Project Gutenberg's header ({} bytes) and footer ({} bytes)", start.end,
                                   plain.text.size() - end.begin));
  plain.text = plain.text.substr(start.end, end.begin - start.end);
  const std::size_t first = plain.text.find_first_not_of(" \n");
  plain.text.erase(0, first == std::string::npos ? plain.text.size() : first);
}

}  // namespace

PlainText plain_text(std::string raw, const PlainTextOptions& options) {
  PlainText plain{std::move(raw), {}};
  if (plain.text.starts_with("\xEF\xBB\xBF")) {
    plain.text.erase(0, 3);
    plain.done.emplace_back("took the byte order mark off");
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < plain.text.size(); ++i)
    if (plain.text[i] != '\r' || i + 1 == plain.text.size() || plain.text[i + 1] != '\n')
      plain.text[kept++] = plain.text[i];
  if (kept != plain.text.size()) {
    plain.done.push_back(fmt::format("turned {} CRLF into LF", plain.text.size() - kept));
    plain.text.resize(kept);
  }
  if (options.gutenberg) cut_gutenberg(plain);
  return plain;
}

}  // namespace palimpsest
