// A text file made ready to be read by a model, with a list of what was done to it.
#pragma once

#include <string>
#include <vector>

namespace palimpsest {

struct PlainTextOptions {
  bool gutenberg = false;  // cut Project Gutenberg's header and footer at *** START ... *** and *** END
};

struct PlainText {
  std::string text;
  std::vector<std::string> done;  // one phrase a change, with its size; empty: the bytes are as they came
};

// Takes a UTF-8 byte order mark off and turns CRLF into LF; cuts as the options say. Throws Error when a cut was asked
// for and its marks are not there.
PlainText plain_text(std::string raw, const PlainTextOptions& options = {});

}  // namespace palimpsest
