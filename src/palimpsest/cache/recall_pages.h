// One head's second tier (cache/recall_tier.h), for the kernels: plain data, valid until the tier changes.
#pragma once

#include <cstdint>

#include "palimpsest/cache/view.h"

namespace palimpsest {

struct RecallPages {
  BlockTable page;                         // pages of kTile slots
  const std::uint16_t* present = nullptr;  // [pages] bit l: slot l holds a token
  int pages = 0;
};

// The pages that the last query which chose has chosen.
struct RecallChoice {
  int* page = nullptr;   // [max], ascending; nullptr: a choice is not kept
  int* count = nullptr;  // -1: none was made, or tokens were forgotten since
};

}  // namespace palimpsest
