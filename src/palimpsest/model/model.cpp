#include "palimpsest/model/model.h"

#include <filesystem>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/load_weights.h"
#include "palimpsest/model/lora.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

Model::Model() = default;
Model::~Model() = default;

std::shared_ptr<Model> Model::from(GgufFile file, const ModelOptions& options) {
  for (const GgufOverride& given : options.overrides) file.override_value(given);
  const auto architecture = file.text("general.architecture");
  if (!architecture) fail("{}: key general.architecture is missing; is it a model?", file.path());
  if (*architecture == "clip")
    fail(
        "{}: is a vision projector (mmproj), not a language model; images are not supported: give the model's own file",
        file.path());
  if (file.text("general.type") == "adapter")
    fail("{}: is a LoRA adapter, not a model; give the model with -m and the adapter with --lora", file.path());
  const std::shared_ptr<Model> model(new Model);
  model->options_ = options;
  model->path_ = file.path();
  try {
    model->family_ = &find_family(*architecture);
  } catch (const Error& e) {
    fail("{}: {}", file.path(), e.what());
  }
  const ArchMetadata keys(file, model->family_->architecture);
  for (const GgufOverride& each : rope_overrides(options.rope, keys, model->family_->rope != RopeKind::kNone)) {
    file.override_value(each);
    model->options_.overrides.push_back(each);
  }
  for (const LoraAdapter& adapter : options.lora) merge_lora(file, adapter.path, adapter.scale);
  model->hyper_ = read_hyperparameters(file, *model->family_, options.context);
  model->weights_ = load_weights(std::move(file), *model->family_, options, model->hyper_);
  model->options_.progress = {};
  return model;
}

std::shared_ptr<Model> Model::load(const std::string& path, const ModelOptions& options) {
  const std::shared_ptr<Model> model = from(GgufFile::open(path), options);
  const auto beside = [&](const char* extension) {
    std::error_code ignored;
    const auto file = std::filesystem::path(path).replace_extension(extension);
    return std::filesystem::is_regular_file(file, ignored) ? file.string() : std::string();
  };
  model->hyper_.streaming_head_file = beside(".duo");
  if (options.lora.empty()) model->hyper_.profile_file = beside(".profile");  // with adapters it is another model
  return model;
}

std::shared_ptr<Model> Model::synthetic(std::string_view shape, const ModelOptions& options) {
  const std::shared_ptr<Model> model = from(make_synthetic(parse_synthetic(shape)), options);
  model->path_.clear();
  return model;
}

}  // namespace palimpsest
