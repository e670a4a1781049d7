// How a model is loaded.
#pragma once

#include <string>

namespace palimpsest {

struct ModelOptions {
  std::string device =
      "cpu";              // a ggml device name as `palimpsest info --devices` lists them ("cpu", "Vulkan0", "CUDA0")
  bool portable = false;  // use stock ggml operators on the CPU, too (other devices always do)
  bool repack = true;     // let ggml repack quantized weights for this CPU (faster; needs a copy in memory)
  int context = 0;        // max context in tokens: selects Phi 3's short or long RoPE factors; 0: the trained context
};

}  // namespace palimpsest
