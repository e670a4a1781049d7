#include "palimpsest/engine/sequence/session_options.h"

#include <algorithm>

#include "palimpsest/cache/formats/formats.h"
#include "palimpsest/core/error.h"
#include "palimpsest/graph/attention_path.h"
#include "palimpsest/model/fingerprint.h"

namespace palimpsest {

PlanTarget plan_target(const Hyperparameters& hyper, const SessionOptions& options) {
  PlanTarget target;
  target.shape = cache_shape(hyper);
  target.shape.geometry = target.shape.geometry.with_types(options.cache_type.key, options.cache_type.value);
  target.shape.page_size = options.page_size;
  target.positions = hyper.positions();
  target.shares_layers = !hyper.kv_layers.empty();
  target.several_streams = bool(hyper.alt_up) || hyper.per_layer > 0;
  target.scores_by_position = !hyper.query_factors.empty();
  target.trained_context = hyper.trained_context;
  target.memory = options.auto_memory;
  target.chunk = options.chunk;
  target.layerwise = options.layerwise;
  target.width = hyper.width;
  target.draft_max = options.draft_max;
  target.beside_full = options.beside_full;
  target.vocabulary = hyper.vocabulary;
  target.streaming_head_file = hyper.streaming_head_file;
  target.profile_file = options.profile_file.empty() ? hyper.profile_file : options.profile_file;
  return target;
}

PlanTarget plan_target(const Decoder& decoder, const SessionOptions& options) {
  PlanTarget target = plan_target(decoder.model().hyper(), options);
  target.shape.pages = decoder.cache_options().pages;
  target.model = [&model = decoder.model(), method = options.method] { return policy_model(model, method); };
  return target;
}

namespace {

bool divides_widths(int group, const HeadGeometry& geometry) {
  for (int i = 0; i < geometry.layers(); ++i)
    if (geometry.layer(i).key_width % group != 0 || geometry.layer(i).value_width % group != 0) return false;
  return true;
}

}  // namespace

CacheTypes fitting_cache_type(const Hyperparameters& hyper, SessionOptions options) {
  CacheTypes fitting = CacheType::kF16;
  const bool in_bytes = options.method.budget == kByteBudget;
  if ((options.auto_memory == 0 && !in_bytes) || !options.method.bounded()) return fitting;
  // By measured loss; no keys of 4 bits, which some models do not bear (docs/decisions/0060-bits-before-evictions.md).
  for (const CacheTypes type :
       {CacheTypes(CacheType::kF16), CacheTypes(CacheType::kQ8_0), CacheTypes(CacheType::kQ8_0, CacheType::kQ4)}) {
    if (!divides_widths(std::max(kv_format(type.key).group, kv_format(type.value).group), hyper.geometry)) break;
    options.cache_type = type;
    SessionOptions unlimited = options;
    unlimited.auto_memory = 0;
    if (in_bytes) unlimited.method.budget = kAutoBudget;
    try {
      const MethodPlan most(unlimited.method, plan_target(hyper, unlimited));
      fitting = type;
      const MethodPlan plan(options.method, plan_target(hyper, options));
      const bool fits = in_bytes || cache_bytes(plan) <= options.auto_memory;
      if (plan.method().budget >= most.method().budget && fits) break;
    } catch (const Error&) {  // not legal with this type, or even the smallest budget does not fit
    }
  }
  return fitting;
}

bool layerwise_saves(const Hyperparameters& hyper, SessionOptions options, long long prompt, long long tokens) {
  const auto bytes = [&](bool layerwise) {
    options.layerwise = layerwise;
    return MethodPlan(options.method, plan_target(hyper, options)).bytes(prompt, tokens).total();
  };
  const Schedule schedule = options.method.schedule;
  if (!options.method.evicts() || (schedule != Schedule::kPrompt && schedule != Schedule::kPromptStep)) return false;
  try {
    return bytes(true) < bytes(false);
  } catch (const Error&) {  // not legal: the model or the policy
    return false;
  }
}

PolicyModel policy_model(const Model& model, const Method& method) {
  const Hyperparameters& hyper = model.hyper();
  std::vector<RopeOptions> rope;
  for (int head = 0; head < hyper.geometry.heads(); ++head)
    rope.push_back(hyper.rope_table(hyper.rope_of(hyper.geometry.layer_of(head))));
  return {.path = model.path(),
          .fingerprint = fingerprint(model),
          .layers = hyper.layers,
          .kv_heads = hyper.geometry.max_kv_heads(),
          .head_dim = hyper.geometry.max_key_width(),
          .value_dim = hyper.geometry.max_value_width(),
          .heads = hyper.geometry.heads(),
          .group = hyper.geometry.max_group(),
          .rope = std::move(rope),
          .scorer = method.scorer};
}

}  // namespace palimpsest
