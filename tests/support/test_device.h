// The device of tests that need one beside the CPU: PALIMPSEST_TEST_DEVICE, as in CUDA0; else Vulkan0, which is Mesa's
// software device where there is no GPU.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>

#include "palimpsest/model/backend.h"

namespace palimpsest::testing {

inline std::string test_device() {
  const char* const wish = std::getenv("PALIMPSEST_TEST_DEVICE");
  return wish == nullptr ? "Vulkan0" : wish;
}

// ggml reads these when it loads its backends, at the first use in a process: call this before. Software devices are
// listed only if they are named. Cooperative-matrix products of Mesa's llvmpipe are wrong if the row count is no
// multiple of 8 (ggml 0.27, Mesa 26: the 172 rows of stories260K's feed-forward).
inline bool set_up_vulkan() {
  return ::setenv("GGML_VK_VISIBLE_DEVICES", "0", 0) == 0 && ::setenv("GGML_VK_DISABLE_COOPMAT", "1", 0) == 0;
}

inline bool has_test_device() {
  return set_up_vulkan() &&
         std::ranges::any_of(list_devices(), [](const DeviceInfo& d) { return d.name == test_device(); });
}

}  // namespace palimpsest::testing
