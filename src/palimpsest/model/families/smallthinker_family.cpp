#include "palimpsest/model/arch_metadata.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/families/read_experts.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest {

// Experts are chosen by the layer's input, before attention. The first layer of each four has no window and no
// positions.
const Family kSmallThinkerFamily = {
    .architecture = "smallthinker",
    .models = "SmallThinker",
    .activation = Activation::kRelu,
    .experts = Presence::kYes,
    .router_of_layer_input = true,
    .read =
        [](const ArchMetadata& keys, Hyperparameters& h) {
          read_experts(keys, h, Routing::kSoftmax);
          h.normalize_experts = true;
          constexpr int kWindow = 4096, kPeriod = 4;
          if (keys.optional("attention.sliding_window", 0, INT32_MAX, 0) == 0) return;
          const int period = keys.optional("attention.sliding_window_pattern", kPeriod, ArchMetadata::kMax, 1);
          std::vector<std::int32_t> windows;
          for (int i = 0; i < h.layers; ++i) windows.push_back(i % period == 0 ? INT32_MAX : kWindow);
          h.rotate_in_windows(windows);
        },
    .tiny = {.layers = 5,
             .experts = 8,
             .experts_used = 2,
             .keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 4096},
                      {"expert_gating_func", ExtraKey::Type::kInteger, 2}}},
};

}  // namespace palimpsest
