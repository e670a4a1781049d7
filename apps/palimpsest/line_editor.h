// Messages typed into chat. On a terminal with editing, history and multi-line paste (libedit, if the program was built
// with it); else every line of standard input is a message.
#pragma once

#include <memory>
#include <string>

namespace palimpsest::cli {

class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  enum Result { kLine, kEnd, kInterruption };
  // Waits for a message. Ctrl-C (interrupted()) ends the wait. Throws Error if standard input cannot be read. Pasted
  // text and text typed with Alt-Enter may have several lines. `begin`: text to edit; without an editor it is ignored.
  Result next(std::string& message, const std::string& begin = {});

  bool terminal() const;      // standard input is a terminal
  bool edits() const;         // ... with editing
  static const char* keys();  // help on the keys; "" if the program was built without an editor

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace palimpsest::cli
