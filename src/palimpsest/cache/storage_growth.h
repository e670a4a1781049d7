// How the memory of a sequence on a device grows: apart from storage.h, which all of the engine sees.
#pragma once

namespace palimpsest {

// By at least this part, since a GPU takes a millisecond for each tensor; plans of memory count it
// (evict/method_plan.h).
constexpr int kStorageGrowth = 4;  // a quarter

}  // namespace palimpsest
