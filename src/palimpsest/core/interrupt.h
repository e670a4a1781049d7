// Ends long work of a request that was cancelled, or is late: evictions that compare many tokens.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>

namespace palimpsest {

class Interrupted : public std::exception {
 public:
  const char* what() const noexcept override { return "the request was cancelled, or reached its deadline"; }
};

class Interrupt {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Interrupt(std::optional<Clock::time_point> deadline = {}) : deadline_(deadline) {}

  void cancel() noexcept { cancelled_.store(true, std::memory_order_relaxed); }  // from any thread
  bool cancelled() const noexcept { return cancelled_.load(std::memory_order_relaxed); }
  bool late() const noexcept { return deadline_ && Clock::now() >= *deadline_; }
  // Takes about 50 ns. Call it before each part of the work that takes at most a few milliseconds.
  void check() const {
    if (cancelled() || late()) throw Interrupted();
  }

 private:
  std::atomic<bool> cancelled_ = false;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace palimpsest
