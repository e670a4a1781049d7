// A model: hyper-parameters and weights on a device. Immutable once loaded; any number of sequences may use it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

struct ModelOptions {
  std::string device =
      "cpu";              // a ggml device name as `palimpsest info --devices` lists them ("cpu", "Vulkan0", "CUDA0")
  bool portable = false;  // stock ggml operators even on the CPU (always so on other devices)
  bool repack = true;     // let ggml re-lay quantised weights for this CPU (faster, one copy in memory)
  int context = 0;        // positions that will be seen: Phi 3 has one set of rotary factors for short texts, one for
                          // long ones; 0: the trained context
};

struct Weights;  // model/weights.h
struct Family;   // model/family.h
class GgufFile;  // model/gguf_file.h

class Model {
 public:
  // Throws Error for anything that is not a whole, consistent GGUF model of a supported architecture.
  static std::shared_ptr<Model> load(const std::string& path, const ModelOptions& options = {});
  // Random weights in a named real shape: "llama-3.2-1b", "llama-3.2-1b@layers=4@type=q4_0". For speed, never for
  // quality.
  static std::shared_ptr<Model> synthetic(std::string_view shape, const ModelOptions& options = {});
  // From a file that is open already, or from bytes in memory.
  static std::shared_ptr<Model> from(GgufFile file, const ModelOptions& options = {});
  ~Model();

  const Hyperparameters& hyper() const { return hyper_; }
  const Family& family() const { return *family_; }
  const Weights& weights() const { return *weights_; }
  const ModelOptions& options() const { return options_; }
  const std::string& path() const { return path_; }  // empty if synthetic

 private:
  Model();
  Hyperparameters hyper_;
  const Family* family_ = nullptr;
  std::unique_ptr<Weights> weights_;
  ModelOptions options_;
  std::string path_;
};

}  // namespace palimpsest
