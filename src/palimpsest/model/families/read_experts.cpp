#include "palimpsest/model/families/read_experts.h"

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

void read_experts(const ArchMetadata& keys, Hyperparameters& h, Routing routing) {
  const std::string& path = keys.file().path();
  h.leading_dense = keys.optional("leading_dense_block_count", 0, ArchMetadata::kMax, 0);
  const auto shared = std::int64_t{h.expert_feed_forward} * keys.optional("expert_shared_count", 0, 1 << 10, 0);
  if (shared > ArchMetadata::kMax) fail("{}: its shared experts have a width of {}: damaged", path, shared);
  h.shared_feed_forward = static_cast<int>(shared);
  const int function = keys.optional("expert_gating_func", 0, 2, 0);  // 0 in old files
  h.routing = function == 0 ? routing : function == 2 ? Routing::kSigmoid : Routing::kSoftmax;
  h.normalize_experts = keys.flag("expert_weights_norm", false);
  const double scale = keys.number("expert_weights_scale", 1, 0, 1e6);
  h.expert_scale = scale == 0 ? 1 : static_cast<float>(scale);
  h.expert_groups = keys.optional("expert_group_count", 1, 4096);
  h.expert_groups_used = keys.optional("expert_group_used_count", h.expert_groups, 4096);
  const int size = h.experts / h.expert_groups;
  if (size * h.expert_groups != h.experts || h.expert_groups_used > h.expert_groups ||
      (h.expert_groups > 1 && size < 2) || h.experts_used > size * h.expert_groups_used)
    fail("{}: {} of {} experts in {} of {} groups are to be used: damaged", path, h.experts_used, h.experts,
         h.expert_groups_used, h.expert_groups);
}

void read_dense_layers_and_windows(const ArchMetadata& keys, Hyperparameters& h) {
  h.leading_dense = 0;
  while (h.leading_dense < h.layers &&
         keys.file().find("blk." + std::to_string(h.leading_dense) + ".ffn_gate_inp.weight") == nullptr)
    ++h.leading_dense;
  keys.required("attention.sliding_window", INT32_MAX);
  h.geometry = h.geometry.with_windows(keys.windows(h.layers, 0, 1));
  h.local_rope = h.rope;
  h.local_rope->base = keys.number("rope.freq_base_swa", h.rope.base, 1, 1e15);
}

}  // namespace palimpsest
