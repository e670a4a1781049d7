// The scan of a Mamba-2 layer (arXiv 2405.21060) or a gated delta rule (2412.06464), as a custom operator: reads each
// sequence's state before the step and writes the states after it. A token's result is the same bits in any company.
#pragma once

#include <ggml.h>

namespace palimpsest {

class Step;

// `out` [head_dim * heads, tokens] is the operator, its sources are those of AttentionPath::scan. Thread `thread` of
// `threads` computes some of the heads.
void scan(const Step& step, int layer, ggml_tensor* out, int thread, int threads);

}  // namespace palimpsest
