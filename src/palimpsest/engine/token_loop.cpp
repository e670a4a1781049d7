#include "palimpsest/engine/token_loop.h"

namespace palimpsest {

const char* name_of(Finish finish) {
  switch (finish) {
    case Finish::kEnd:
      return "end";
    case Finish::kLength:
      return "length";
    case Finish::kStopped:
      return "stop";
    case Finish::kCancelled:
      return "cancelled";
    case Finish::kDeadline:
      return "deadline";
    case Finish::kFailed:
      break;
  }
  return "failed";
}

}  // namespace palimpsest
