#include "palimpsest/model/families/families.h"

namespace palimpsest {

// Norms before the last product of both parts of a layer.
const Family kBitNetFamily = {
    .architecture = "bitnet",
    .models = "BitNet b1.58 3B",
    .limits = "scales of weights",
    .sub_norms = Presence::kYes,
    .output = Presence::kNo,
};

}  // namespace palimpsest
