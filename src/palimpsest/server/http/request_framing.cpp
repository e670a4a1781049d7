#include "palimpsest/server/http/request_framing.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "palimpsest/core/letter_case.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxChunkLine = 1024;  // bytes of a chunk's length with its extensions, or of a trailer

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == text.npos ? std::string_view() : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// All of `text` as a number; std::nullopt: it is none, or does not fit.
std::optional<std::size_t> number(std::string_view text, int base) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

}  // namespace

bool RequestFraming::wants_continue() {
  return std::exchange(wants_continue_, false);
}

RequestFraming::State RequestFraming::read(std::string& bytes) {
  if (state_ == State::kEmpty || state_ == State::kHead) state_ = read_head(bytes);
  if (state_ != State::kBody) return state_;
  if (chunked_)
    state_ = read_chunks(bytes);
  else if (bytes.size() >= end_)
    state_ = State::kWhole;
  return state_;
}

RequestFraming::State RequestFraming::read_head(std::string& bytes) {
  if (searched_ == 0)  // empty lines before a request are ignored
    bytes.erase(0, std::min(bytes.find_first_not_of("\r\n"), bytes.size()));
  if (bytes.empty()) return State::kEmpty;
  const std::size_t end = bytes.find("\r\n\r\n", searched_ < 3 ? 0 : searched_ - 3);
  searched_ = bytes.size();
  if (std::min(end, bytes.size()) > kMaxHead) return State::kTooLong;
  if (end == std::string::npos) return State::kHead;

  std::optional<std::size_t> length;
  for (std::size_t at = bytes.find("\r\n"); at < end;) {
    at += 2;
    const std::size_t next = bytes.find("\r\n", at);
    const std::string_view line = std::string_view(bytes).substr(at, next - at);
    const std::size_t colon = line.find(':');
    const std::string_view name = line.substr(0, colon),
                           value = colon == line.npos ? "" : trimmed(line.substr(colon + 1));
    if (equal_ignoring_case(name, "content-length")) {
      const auto one = number(value, 10);
      if (!one || (length && *length != *one)) return State::kBad;
      length = one;
    } else if (equal_ignoring_case(name, "transfer-encoding")) {
      if (!equal_ignoring_case(value, "chunked")) return State::kBad;
      chunked_ = true;
    } else if (equal_ignoring_case(name, "expect") && equal_ignoring_case(value, "100-continue")) {
      wants_continue_ = true;
      bytes.replace(at, name.size(), "X-Done");  // else the library would send it again
    }
    at = next;
  }
  if (chunked_ && length) return State::kBad;  // request smuggling
  end_ = end + 4;
  if (chunked_) return State::kBody;
  if (!length || *length == 0) return State::kWhole;
  if (*length > max_body_) {
    end_ = std::min(bytes.size(), end_ + *length);
    return State::kCut;
  }
  end_ += *length;
  return State::kBody;
}

RequestFraming::State RequestFraming::read_chunks(const std::string& bytes) {
  for (;;) {
    const std::size_t line_end = bytes.find("\r\n", end_);
    if (line_end == std::string::npos) return bytes.size() - end_ > kMaxChunkLine ? State::kBad : State::kBody;
    const std::string_view line = std::string_view(bytes).substr(end_, line_end - end_);
    if (line.size() > kMaxChunkLine) return State::kBad;
    if (trailers_) {
      end_ = line_end + 2;
      if (line.empty()) return State::kWhole;
      continue;
    }
    const auto size = number(trimmed(line.substr(0, line.find(';'))), 16);
    if (!size) return State::kBad;
    if (*size == 0) {
      trailers_ = true;
      end_ = line_end + 2;
      continue;
    }
    // Small chunks have more bytes of lengths than of content.
    if (*size > max_body_ || line_end > 2 * max_body_ + kMaxHead) {
      end_ = bytes.size();
      return State::kCut;
    }
    const std::size_t next = line_end + 2 + *size + 2;
    if (bytes.size() < next) return State::kBody;
    if (bytes.compare(next - 2, 2, "\r\n") != 0) return State::kBad;
    end_ = next;
  }
}

}  // namespace palimpsest
