// A crash-safe file of JSON lines: append() returns after the line is on the disk, and an incomplete last line is
// dropped when the file is opened again. One writer at a time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace palimpsest {

// Read-only. Throws Error for a missing file, and for a line (except the last) that is not a JSON object.
std::vector<nlohmann::json> read_results(const std::string& path);

class ResultsFile {
 public:
  explicit ResultsFile(const std::string& path);  // throws Error, also if another process is writing to it
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::vector<nlohmann::json>& lines() const { return lines_; }  // present when it was opened
  bool torn() const { return torn_; }                                  // an incomplete line was dropped
  void append(const nlohmann::json& line);                             // throws Error

 private:
  std::string path_;
  int file_ = -1;
  bool torn_ = false;
  std::vector<nlohmann::json> lines_;
};

}  // namespace palimpsest
