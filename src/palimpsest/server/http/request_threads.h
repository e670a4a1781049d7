// Threads that serve requests: one for each request in progress; it sleeps while the model runs.
//
// Replaces httplib::ThreadPool, which starts no thread while one counts as idle, although another request has just
// woken that one: the second request then waits until any other ends.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace palimpsest {

class RequestThreads {
 public:
  // `max_waiting`: requests that wait for a thread; more are refused.
  RequestThreads(std::size_t max_threads, std::size_t max_waiting)
      : max_threads_(max_threads), max_waiting_(max_waiting) {}
  ~RequestThreads() { shut_down(); }

  // false: too many wait, or no thread can be started; `serve` is destroyed. `urgent` (health checks): has threads in
  // reserve beyond max_threads. Throws nothing; an exception of `serve` ends that request only.
  bool enqueue(std::function<void()> serve, bool urgent);
  void shut_down();  // serves what waits, then ends the threads

 private:
  using Threads = std::list<std::thread>;
  void run(Threads::iterator self);
  bool has_work() const { return !urgent_.empty() || (!waiting_.empty() && serving_ < max_threads_); }

  static constexpr std::size_t kReserve = 2;  // threads
  const std::size_t max_threads_, max_waiting_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_, urgent_;
  Threads threads_, ended_;
  std::size_t serving_ = 0;  // requests that are not urgent
  std::size_t idle_ = 0;     // threads that wait, those included that were woken, but have not taken a request
  bool stopped_ = false;
};

}  // namespace palimpsest
