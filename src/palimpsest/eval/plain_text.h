// Cleans a text file for a model and lists the changes.
#pragma once

#include <string>
#include <vector>

namespace palimpsest {

struct PlainTextOptions {
  bool gutenberg = false;  // remove Project Gutenberg's header and footer at *** START ... *** and *** END
};

struct PlainText {
  std::string text;
  std::vector<std::string> done;  // one phrase per change, with its size; empty: unchanged
};

// Removes a UTF-8 byte order mark, converts CRLF to LF, and cuts as the options say. Throws Error if the marks of a
// requested cut are missing.
PlainText plain_text(std::string raw, const PlainTextOptions& options = {});

}  // namespace palimpsest
