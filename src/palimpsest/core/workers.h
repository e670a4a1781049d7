// Parallel loops between the steps of a model.
#pragma once

#include <memory>
#include <type_traits>

namespace palimpsest {

class Workers {
 public:
  virtual ~Workers() = default;

  virtual int threads() const = 0;  // includes the caller
  // Calls body(index) once for every index below `count`, in any order, on any thread; returns when all are done. If
  // `body` throws, starts no further index and rethrows the first exception. One loop at a time. Only the first
  // allocates.
  template <typename Body>
  void run(int count, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_loop(count, {[](void* b, int index) { (*static_cast<Plain*>(b))(index); },
                     const_cast<std::remove_const_t<Plain>*>(std::addressof(body))});
  }

 protected:
  struct Loop {
    void (*call)(void* body, int index) = nullptr;
    void* body = nullptr;
  };
  virtual void run_loop(int count, const Loop& loop) = 0;
};

}  // namespace palimpsest
