#include "palimpsest/model/families/families.h"

namespace palimpsest {

// The activation is the square of a ReLU.
const Family kArceeFamily = {
    .architecture = "arcee",
    .models = "AFM 4.5B",
    .rope = RopeKind::kPairs,
    .feed_forward = FeedForward::kPlain,
    .activation = Activation::kReluSquared,
};

}  // namespace palimpsest
