// Threads of the HTTP server: one for each connection that is being served; it sleeps while its request runs.
//
// Replaces httplib::ThreadPool, which starts no thread while one counts as idle, although another connection has just
// woken that one: the second connection then waits until any other ends, which persistent connections of a proxy do
// not.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <mutex>
#include <thread>

namespace palimpsest {

class Connections final : public httplib::TaskQueue {
 public:
  // `max_waiting`: connections that wait for a thread; more are closed.
  Connections(std::size_t max_threads, std::size_t max_waiting)
      : max_threads_(max_threads), max_waiting_(max_waiting) {}
  ~Connections() override { shutdown(); }

  // false: the connection is closed. Throws nothing; an exception of `serve` ends its connection only.
  bool enqueue(std::function<void()> serve) override;
  void shutdown() override;  // serves what waits, then ends the threads

 private:
  using Threads = std::list<std::thread>;
  void run(Threads::iterator self);

  const std::size_t max_threads_, max_waiting_;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  Threads threads_, ended_;
  std::size_t idle_ = 0;  // threads that wait, those included that were woken, but have not taken a connection
  bool stopped_ = false;
};

}  // namespace palimpsest
