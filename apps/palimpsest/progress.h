// A progress line on a terminal (stderr), shown after two seconds or by begin():
//
//   reading  [##########----------]  51%  52,224 of 102,400 tokens  1,034/s  0:49 left
#pragma once

#include <chrono>
#include <string>

namespace palimpsest::cli {

class Progress {
 public:
  Progress(std::string label, std::string unit);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void begin(long long total);                   // shows the line at once: the first update may come late
  void update(long long done, long long total);  // total < 0: unknown
  void clear();                                  // erases the line

 private:
  using Clock = std::chrono::steady_clock;
  void draw(long long done, long long total, Clock::time_point now);

  std::string label_, unit_;
  bool terminal_, shown_ = false;
  Clock::time_point start_ = Clock::now(), drawn_{};
};

// The line without control characters.
std::string progress_line(const std::string& label, const std::string& unit, long long done, long long total,
                          double seconds);
std::string thousands(long long number);  // 102,400

}  // namespace palimpsest::cli
