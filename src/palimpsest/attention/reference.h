// The oracle: attention in double precision with plain loops. Never fast, never deleted.
#pragma once

#include "palimpsest/attention/attention.h"

namespace palimpsest {

void attention_reference(const AttentionStep& step);

}  // namespace palimpsest
