#include "palimpsest/engine/session_options.h"

#include "palimpsest/graph/attention_path.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {

PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options) {
  PlanTarget target;
  target.shape = cache_shape(hyper);
  target.shape.geometry = target.shape.geometry.with_types(options.cache_type.key, options.cache_type.value);
  target.shape.page_size = options.page_size;
  target.positions = hyper.positions();
  target.trained_context = hyper.trained_context;
  target.memory = options.auto_memory;
  target.chunk = options.chunk;
  target.layerwise = options.layerwise;
  target.width = hyper.width;
  target.draft_max = options.draft_max;
  target.vocabulary = hyper.vocabulary;
  target.streaming_head_file = hyper.streaming_head_file;
  return target;
}

PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options) {
  PlanTarget target = plan_target(decoder.model().hyper(), options);
  target.shape.pages = decoder.cache_options().pages;
  target.model = [&model = decoder.model(), method = options.method] { return policy_model(model, method); };
  return target;
}

PolicyModel policy_model(const Model& model, const Method& method) {
  const Hyperparameters& hyper = model.hyper();
  return {.path = model.path(),
          .fingerprint = fingerprint(model),
          .layers = hyper.layers,
          .kv_heads = hyper.geometry.max_kv_heads(),
          .head_dim = hyper.geometry.layer(0).key_width,
          .value_dim = hyper.geometry.layer(0).value_width,
          .heads = hyper.geometry.heads(),
          .scorer = method.scorer};
}

}  // namespace palimpsest
