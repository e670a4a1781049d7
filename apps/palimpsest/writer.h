// Shared by run and chat: a model with its vocabulary, and text output to standard output.
#pragma once

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "palimpsest/engine/generation/generator.h"
#include "palimpsest/options.h"
#include "palimpsest/progress.h"

namespace palimpsest::cli {

struct TextModel {
  std::shared_ptr<Model> model;
  std::shared_ptr<Vocabulary> vocabulary;
};
TextModel load_text_model(const ModelFlags& flags);  // throws Error, also if vocabulary and model do not match

// SessionOptions::profile_file: shares of heads for a method that uses some and a model that has none, measured with a
// note on standard error, or those of an earlier time (fit/own_shares.h).
std::string profile_of(const TextModel& loaded, const SessionOptions& options, StepThreads threads);

// Unbuffered. A closed pipe (EPIPE) sets closed(); any other failure throws Error. On a terminal, control characters
// and marks of direction are made visible (text/visible_text.h): the text is a model's.
class StandardOutput {
 public:
  void write(std::string_view text);  // whole characters
  void end_line();                    // writes a newline unless at the beginning of a line
  bool closed() const { return closed_; }

 private:
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  bool closed_ = false, at_line_start_ = true;
};

// For generate(): shows a prompt of more than a chunk at once, others after a while. `progress` outlives it.
Session::Progress reading_progress(Progress& progress);

// "512 tokens, 0.81 ms each (p99 1.20), 1234 tokens/s; TTFT 12 ms, 6 prompt tokens; cache 320.0 KiB (peak ...), 260
// evicted; 4 sinks protected"
// `small`: the session that drafts for a lossless method; nullptr: none.
std::string summary_line(const Generation& generation, const Session& session, const Session* small = nullptr);

}  // namespace palimpsest::cli
