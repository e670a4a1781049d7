// ggml's devices: loaded once, found by name. Functions of one backend are reached through its registry, never by
// linking, so that every build of ggml works, plug-ins too.
#pragma once

#include <ggml-backend.h>
#include <ggml-cpp.h>

#include <string>
#include <vector>

namespace palimpsest {

struct DeviceInfo {
  std::string name, description;  // name: as --device takes it
  std::size_t memory_free = 0, memory_total = 0;
  bool cpu = false;
};
std::vector<DeviceInfo> list_devices();

// Loads ggml's backends at the first call. Throws Error, naming the devices there are, for an unknown name.
ggml_backend_dev_t find_device(const std::string& name);

bool is_cpu(ggml_backend_dev_t device);

// A stream of work on the device; `threads` matters to devices that compute on the CPU.
ggml_backend_ptr make_backend(ggml_backend_dev_t device, int threads);

// Buffer types beside the plain one that the device can lay weights out in (the CPU's repacked forms).
std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device);

}  // namespace palimpsest
