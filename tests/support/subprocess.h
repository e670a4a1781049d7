// Runs programs: arguments and standard input in; standard output, standard error and exit code out.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/file_content.h"

namespace palimpsest::testing {

struct Finished {
  int code = -1;  // exit code; 128 + n: ended by signal n
  std::string out, err;
};

class Subprocess {
 public:
  // Variables in `environment` are set, or removed if empty.
  Subprocess(const std::string& program, const std::vector<std::string>& arguments,
             const std::map<std::string, std::string>& environment = {});
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void write(const std::string& text);  // to its standard input
  void close_input();
  std::string out() const;  // so far
  std::string err() const;
  bool wait_for_output(std::size_t bytes, double seconds = 30) const;            // of standard output
  bool wait_for_error_text(const std::string& part, double seconds = 30) const;  // on standard error
  void wait_until_caught(int number) const;  // until the process has a handler for the signal
  void signal(int number);
  Finished wait();  // closes its input first

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int input_ = -1;
};

Finished run_program(const std::string& program, const std::vector<std::string>& arguments,
                     const std::string& input = {}, const std::map<std::string, std::string>& environment = {});

// A file in a folder of this test run.
std::filesystem::path write_file(const std::string& name, const std::string& bytes);

}  // namespace palimpsest::testing
