// The causal convolution of a recurrent layer, as a custom operator: reads each sequence's state before the step and
// writes the states after it. A token's result is the same bits in any company.
#pragma once

#include <ggml.h>

namespace palimpsest {

class Step;

// `out` [channels, tokens] is the operator, its sources are x and weight (AttentionPath::convolve). Thread `thread` of
// `threads` computes a part of the channels.
void convolve(const Step& step, int layer, ggml_tensor* out, int thread, int threads);

}  // namespace palimpsest
