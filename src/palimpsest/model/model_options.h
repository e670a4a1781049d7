// How a model is loaded.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_override.h"
#include "palimpsest/model/rope_settings.h"

namespace palimpsest {

struct LoraAdapter {
  std::string path;
  float scale = 1;
};

struct ModelOptions {
  // ggml device names as `palimpsest info --devices` lists them ("cpu", "Vulkan0", "CUDA0,CUDA1"): with several, each
  // has a range of the layers. Empty: the CPU, or those of `rpc`.
  std::string device = {};
  std::string rpc =
      {};  // servers, "host:port,host:port": their devices are RPC0, RPC1, ...; `device` empty: all of them
  std::vector<double> tensor_split = {};  // the devices' shares of the weights; empty: by their free memory
  bool portable = false;                  // use stock ggml operators on the CPU, too (other devices always do)
  bool repack = true;  // let ggml repack quantized weights for this CPU (faster; needs a copy in memory)
  int context = 0;     // max context in tokens: selects Phi 3's short or long RoPE factors; 0: the trained context
  std::vector<LoraAdapter> lora = {};        // merged into the weights, in this order (model/lora.h)
  std::vector<GgufOverride> overrides = {};  // of metadata
  RopeSettings rope = {};                    // once loaded, its values are among `overrides`
  // Called while matrices are copied or repacked, in bytes. Matrices that are used in place are read when they are
  // needed.
  std::function<void(std::size_t done, std::size_t total)> progress = {};
};

}  // namespace palimpsest
