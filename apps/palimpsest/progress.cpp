#include "palimpsest/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace palimpsest::cli {
namespace {

using namespace std::chrono_literals;
constexpr std::chrono::milliseconds kPatience = 2s, kRedraw = 200ms;

std::string clock_time(double seconds) {
  const auto s = static_cast<long long>(std::min(seconds, 1e9));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

}  // namespace

std::string thousands(long long number) {
  std::string text = std::to_string(number);
  const std::ptrdiff_t first = number < 0 ? 1 : 0;
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3)
    text.insert(static_cast<std::size_t>(at), 1, ',');
  return text;
}

std::string progress_line(const std::string& label, const std::string& unit, long long done, long long total,
                          double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
  const std::string speed =
      fmt::format("{}/s", rate >= 10 ? thousands(static_cast<long long>(rate)) : fmt::format("{:.1f}", rate));
  if (total <= 0) return fmt::format("{}  {} {}  {}", label, thousands(done), unit, speed);
  if (done == 0) return fmt::format("{}  {} {}", label, thousands(total), unit);
  constexpr long long kWidth = 20;
  const long long filled = std::clamp(done * kWidth / total, 0LL, kWidth);
  return fmt::format("{}  [{:#<{}}{:-<{}}] {:3}%  {} of {} {}  {}  {} left", label, "", filled, "", kWidth - filled,
                     std::clamp(done * 100 / total, 0LL, 100LL), thousands(done), thousands(total), unit, speed,
                     rate > 0 ? clock_time(static_cast<double>(total - done) / rate) : "?");
}

Progress::Progress(std::string label, std::string unit)
    : label_(std::move(label)), unit_(std::move(unit)), terminal_(isatty(STDERR_FILENO) == 1) {}

void Progress::begin(long long total) {
  if (terminal_) draw(0, total, Clock::now());
}

void Progress::update(long long done, long long total) {
  const auto now = Clock::now();
  if (terminal_ && (shown_ || now - start_ >= kPatience) && now - drawn_ >= kRedraw) draw(done, total, now);
}

void Progress::draw(long long done, long long total, Clock::time_point now) {
  drawn_ = now;
  shown_ = true;
  const std::chrono::duration<double> elapsed = now - start_;
  fmt::print(stderr, "\r{}\x1b[K", progress_line(label_, unit_, done, total, elapsed.count()));
  std::fflush(stderr);
}

void Progress::clear() {
  if (std::exchange(shown_, false)) fmt::print(stderr, "\r\x1b[K");
}

}  // namespace palimpsest::cli
