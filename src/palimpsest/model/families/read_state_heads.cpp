#include "palimpsest/model/families/read_state_heads.h"

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

void read_state_heads(const ArchMetadata& keys, Hyperparameters& h, bool all_layers, bool tiled) {
  const int taps = keys.required("ssm.conv_kernel", kMaxTaps), inner = keys.required("ssm.inner_size");
  const int heads = keys.required("ssm.time_step_rank", 1 << 14);
  const StateHeads m = {.heads = heads,
                        .head_dim = inner / heads,
                        .groups = keys.required("ssm.group_count", 1 << 10),
                        .state_width = keys.required("ssm.state_size", 1 << 12),
                        .tiled = tiled};
  if (taps < 2 || m.heads * m.head_dim != inner || m.heads % m.groups != 0 || m.state_width % StateHeads::kLanes != 0)
    fail(
        "{}: recurrent layers of {} taps, {} channels in {} heads and {} groups, and states of {}: the heads must "
        "share "
        "out the channels, the groups the heads, and {} divide the states",
        keys.file().path(), taps, inner, m.heads, m.groups, m.state_width, StateHeads::kLanes);
  h.add_recurrent_layers(taps, m, all_layers);
}

}  // namespace palimpsest
