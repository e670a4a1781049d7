// A file of JSON lines that survives its writer: a line that was appended is on the disk before append() returns, and
// a last line that was torn by a kill is dropped when the file is opened again. One writer at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace palimpsest {

// For reading alone. Throws Error for a file that is not there, and for a line (but the last) that is no JSON object.
std::vector<nlohmann::json> read_results(const std::string& path);

class ResultsFile {
 public:
  explicit ResultsFile(const std::string& path);  // throws Error, too if another program is writing to it
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::vector<nlohmann::json>& lines() const { return lines_; }  // that were there
  bool torn() const { return torn_; }                                  // a line was dropped
  void append(const nlohmann::json& line);                             // throws Error

 private:
  std::string path_;
  int file_ = -1;
  bool torn_ = false;
  std::vector<nlohmann::json> lines_;
};

}  // namespace palimpsest
