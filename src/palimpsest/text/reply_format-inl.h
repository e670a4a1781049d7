// The format of replies with tool calls or reasoning, in the terms of llama.cpp's chat library. Only for sources of
// text/: its headers are not installed.
#pragma once

#include <llama-common/chat.h>

#include <set>
#include <string>

namespace palimpsest {

class ReplyFormat {
 public:
  common_chat_parser_params params;
  std::set<std::string> tools;  // names
};

}  // namespace palimpsest
