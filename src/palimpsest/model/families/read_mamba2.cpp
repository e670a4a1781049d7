#include "palimpsest/model/families/read_mamba2.h"

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

void read_mamba2(const ArchMetadata& keys, Hyperparameters& h, bool all_layers) {
  const int taps = keys.required("ssm.conv_kernel", kMaxTaps), inner = keys.required("ssm.inner_size");
  const int heads = keys.required("ssm.time_step_rank", 1 << 14);
  const Mamba2 m = {.heads = heads,
                    .head_dim = inner / heads,
                    .groups = keys.required("ssm.group_count", 1 << 10),
                    .state_width = keys.required("ssm.state_size", 1 << 12)};
  if (taps < 2 || m.heads * m.head_dim != inner || m.heads % m.groups != 0 || m.state_width % Mamba2::kLanes != 0)
    fail(
        "{}: Mamba-2 layers of {} taps, {} channels in {} heads and {} groups, and states of {}: the heads must share "
        "out the channels, the groups the heads, and {} divide the states",
        keys.file().path(), taps, inner, m.heads, m.groups, m.state_width, Mamba2::kLanes);
  h.add_recurrent_layers(taps, m, all_layers);
}

}  // namespace palimpsest
