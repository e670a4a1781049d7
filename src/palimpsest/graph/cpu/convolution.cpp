#include "palimpsest/graph/cpu/convolution.h"

#include <algorithm>
#include <array>

#include "palimpsest/graph/step.h"

namespace palimpsest {

void convolve(const Step& step, int layer, ggml_tensor* out, int thread, int threads) {
  const LayerState& shape = step.state(layer);
  const ggml_tensor *x = out->src[0], *weight = out->src[1];
  const int channels = shape.channels, taps = shape.taps, kept = taps - 1;
  const int first = static_cast<int>(std::int64_t{channels} * thread / threads);
  const int last = static_cast<int>(std::int64_t{channels} * (thread + 1) / threads);
  const auto* const weights = static_cast<const float*>(weight->data);
  const auto row = [](const ggml_tensor* t, int token) {
    return reinterpret_cast<float*>(static_cast<char*>(t->data) + at(token) * t->nb[1]);
  };
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceTokens& tokens = step.attention(layer).tokens[i];
    const SequenceStep& sequence = step.input()[at(i)];
    RecurrentState& state = sequence.cache->state();
    const float* const before = state.before() + shape.offset;
    const auto input = [&](int token) {  // of this step; negative: the state's
      return token < 0 ? before + static_cast<std::ptrdiff_t>(kept + token) * channels : row(x, tokens.first + token);
    };
    for (int token = 0; token < tokens.count; ++token) {
      std::array<const float*, kMaxTaps> in;
      for (int tap = 0; tap < taps; ++tap) in[at(tap)] = input(token - kept + tap);
      float* const y = row(out, tokens.first + token);
      for (int c = first; c < last; ++c) {
        float sum = 0;
        for (int tap = 0; tap < taps; ++tap) sum += in[at(tap)][c] * weights[c * taps + tap];
        y[c] = sum;
      }
    }
    const int outcomes = tokens.drafts ? tokens.count : 1;
    for (int k = 0; k < outcomes; ++k) {
      float* const after = state.outcome(k) + shape.offset;
      const int next = tokens.count - outcomes + k + 1;
      for (int tap = 0; tap < kept; ++tap)
        std::copy(input(next - kept + tap) + first, input(next - kept + tap) + last,
                  after + static_cast<std::ptrdiff_t>(tap) * channels + first);
    }
  }
}

}  // namespace palimpsest
