// ggml's devices: loaded once, found by name. Backend-specific functions are looked up in the backend's registry, never
// linked, so that every build of ggml works, including backends loaded at run time.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

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

bool is_cpu(ggml_backend_dev_t device);

// Makes a backend on the device. `threads`: used by devices that compute on the CPU.
ggml_backend_ptr make_backend(ggml_backend_dev_t device, int threads);

// Further buffer types of the device that convert the layout of weights (the CPU's repacked forms).
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device);

}  // namespace palimpsest
