// Where an HTTP/1.1 request ends in the bytes of a connection (RFC 9112, section 6). Reads lengths only: the HTTP
// library parses the request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace palimpsest {

class RequestFraming {
 public:
  static constexpr std::size_t kMaxHead = std::size_t{64} << 10;  // bytes of the request line and the headers

  enum class State {
    kEmpty,    // nothing was received, or empty lines only
    kHead,     // the head is incomplete
    kBody,     // the body is incomplete
    kWhole,    // the request ends at end()
    kCut,      // the body is longer than allowed: its beginning, up to end(), is all that is read
    kTooLong,  // the head is longer than kMaxHead
    kBad,      // the lengths cannot be read
  };

  explicit RequestFraming(std::size_t max_body) : max_body_(max_body) {}

  // `bytes`: all of the request that was received so far; what was passed before is its beginning. Renames the header
  // `Expect: 100-continue` in it once it is complete: see wants_continue().
  State read(std::string& bytes);
  State state() const { return state_; }
  std::size_t end() const { return end_; }
  // The client waits for "100 Continue" before it sends the body. True once for a request.
  bool wants_continue();

 private:
  State read_head(std::string& bytes);
  State read_chunks(const std::string& bytes);

  std::size_t max_body_;
  State state_ = State::kEmpty;
  std::size_t searched_ = 0;  // bytes in which the head does not end
  std::size_t end_ = 0;       // of the head, then of the body or of the chunks that were received
  bool chunked_ = false, trailers_ = false, wants_continue_ = false;
};

}  // namespace palimpsest
