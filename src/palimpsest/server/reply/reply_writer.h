// Writes the replies of one API: complete objects and parts of a stream.
#pragma once

#include <string>
#include <vector>

#include "palimpsest/server/reply/reply_parts.h"

namespace palimpsest {

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;
  virtual Json whole(const std::vector<Choice>& choices, const ReplyUsage& usage) = 0;

  // A stream: begin() once, begin_choice() for each choice, piece() for each event, end() or error(). All return the
  // bytes to send.
  virtual const char* stream_type() const { return "text/event-stream"; }
  virtual std::string begin() { return {}; }
  virtual std::string begin_choice(int) { return {}; }
  // `calls`: the reply has called a tool by now. `session`: null, or the saved session, with the last event. `usage`:
  // with the last event of all choices, else nullptr.
  virtual std::string piece(const Event& event, const ReplyDelta& delta, bool calls, const Json& session,
                            const ReplyUsage* usage) = 0;
  virtual std::string memory(int choice, const std::string& event) {  // memory_event()
    static_cast<void>(choice), static_cast<void>(event);
    return {};
  }
  virtual std::string progress(int choice, const PromptProgress& progress, long long tokens, double ms) {
    static_cast<void>(choice), static_cast<void>(progress), static_cast<void>(tokens), static_cast<void>(ms);
    return {};  // `tokens`: of the prompt; `ms`: since the request began
  }
  // Before a piece, if CompletionRequest::timings.
  virtual void so_far(const ReplyUsage& usage) { static_cast<void>(usage); }
  virtual std::string end(const ReplyUsage& usage) = 0;
  virtual std::string error(const ApiError& error) = 0;
  virtual std::string ping() const { return ": ping\n\n"; }  // clients ignore it
};

}  // namespace palimpsest
