// The oracle: attention in double precision with plain loops. Never fast, never deleted.
#pragma once

#include "palimpsest/attention/attention.h"

namespace palimpsest {

void attention_reference(const LayerStep& step);  // insert_reference, then attend_reference

// The two halves: a test can run attend_reference over the bytes that a fast path stored.
void insert_reference(const LayerStep& step);
void attend_reference(const LayerStep& step);

}  // namespace palimpsest
