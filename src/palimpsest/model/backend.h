// ggml's devices: loaded once, found by name. Backend-specific functions are looked up in the backend's registry, never
// linked, so that every build of ggml works, including backends loaded at run time.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace palimpsest {

struct DeviceInfo {
  std::string name, description;  // name: the argument of --device
  std::string kernels;            // of the CPU: our level (core/cpu_level.h), and the library with ggml's kernels
  std::size_t memory_free = 0, memory_total = 0;
  bool cpu = false;
};
std::vector<DeviceInfo> list_devices();

// Loads ggml's backends at the first call; of its CPU backend, the variant for PALIMPSEST_SIMD (core/cpu_level.h). For
// an unknown name throws Error that lists the devices.
ggml_backend_dev_t find_device(const std::string& name);
// "CUDA0,CUDA1": several; empty: the CPU. Throws Error also for a device that is named twice.
std::vector<ggml_backend_dev_t> find_devices(const std::string& names);
std::string name_of(ggml_backend_dev_t device);  // the argument of --device

bool is_cpu(ggml_backend_dev_t device);
bool is_rpc(ggml_backend_dev_t device);  // of an RPC server

// When a buffer on an RPC server is freed, the server forgets all graphs that it was sent, and ggml 0.27 does not tell
// the client, which would ask for them again and be disconnected. So frees are counted, and a graph that was planned
// before the last one is not run on a server again.
std::uint64_t freed_buffers();
void count_freed_buffer();  // call it before memory of a device is freed otherwise
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const {
    count_freed_buffer();
    ggml_backend_buffer_free(buffer);
  }
};
using DeviceBuffer = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

// Floats on the host that a device copies to and from at full speed: pinned memory where it has some, else any.
class HostFloats {
 public:
  explicit HostFloats(ggml_backend_dev_t device) : device_(device) {}
  std::span<float> get(std::size_t count);  // at least so many; what earlier calls returned is invalid

 private:
  ggml_backend_dev_t device_;
  ggml_backend_buffer_ptr pinned_;
  std::vector<float> any_;
};

// Makes a backend on the device. `threads`: used by devices that compute on the CPU.
ggml_backend_ptr make_backend(ggml_backend_dev_t device, int threads);
// Sets the threads of the next graphs.
// Requires: a backend of make_backend().
void set_threads(ggml_backend_t backend, int threads);

// Further buffer types of the device that convert the layout of weights (the CPU's repacked forms).
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device);

}  // namespace palimpsest
