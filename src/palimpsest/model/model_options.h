// How a model is loaded.
#pragma once

#include <string>

namespace palimpsest {

struct ModelOptions {
  std::string device =
      "cpu";              // a ggml device name as `palimpsest info --devices` lists them ("cpu", "Vulkan0", "CUDA0")
  bool portable = false;  // stock ggml operators even on the CPU (always so on other devices)
  bool repack = true;     // let ggml re-lay quantised weights for this CPU (faster, one copy in memory)
  int context = 0;        // positions that will be seen: Phi 3 has one set of rotary factors for short texts, one for
                          // long ones; 0: the trained context
};

}  // namespace palimpsest
