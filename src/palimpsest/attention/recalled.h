// Attention over recalled tokens, beside the kept ones. Every query scores all keys of a second tier
// (cache/recall_tier.h), and attends to those pages that hold the greatest scores. After attention_cpu(), which attends
// to the kept tokens: the two parts of the softmax are joined by their sums, so that with all pages a query gets what
// it would get if all tokens were kept.
#pragma once

#include <cstddef>

#include "palimpsest/attention/attention.h"
#include "palimpsest/cache/recall_pages.h"

namespace palimpsest {

struct Recalled {
  RecallPages pages;
  LayerView layout;  // of a page
  int max_pages = 0;
  RecallChoice choice = {};
  // Whether the queries choose. Otherwise they take the pages of `choice`, if one was made, and score no others.
  bool chooses = true;
};

// Floats of attend_recalled's memory, which is aligned to 64 bytes.
std::size_t recalled_floats(const AttentionShape& shape, const Recalled& recalled);

// Adds the recalled tokens to LayerStep::out of a sequence's KV head: each query of a step recalls the `max_pages`
// pages with the greatest score of any query of its group, and the last one's are kept in Recalled::choice.
// LayerStep::log_sums of the sequence is read. Requires: keys rotated on write, or never; no ALiBi; pages and step of
// the same head.
void attend_recalled(const LayerStep& step, int sequence, int kv_head, const Recalled& recalled, float* memory);

}  // namespace palimpsest
