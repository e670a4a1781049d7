// A model: hyperparameters and weights on a device. Immutable once loaded; any number of sequences may use it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "palimpsest/model/hyperparameters.h"
#include "palimpsest/model/model_options.h"

namespace palimpsest {

struct Weights;  // model/weights.h
struct Family;   // model/family.h
class GgufFile;  // core/gguf_file.h

class Model {
 public:
  // Throws Error unless the file is a complete, consistent GGUF model of a supported architecture.
  static std::shared_ptr<Model> load(const std::string& path, const ModelOptions& options = {});
  // A model of a named shape with random weights: "llama-3.2-1b", "llama-3.2-1b@layers=4@type=q4_0". For speed
  // measurements, not for quality.
  static std::shared_ptr<Model> synthetic(std::string_view shape, const ModelOptions& options = {});
  // From an open file or bytes in memory.
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
