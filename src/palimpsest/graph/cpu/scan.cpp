#include "palimpsest/graph/cpu/scan.h"

#include <cmath>
#include <cstddef>

#include "palimpsest/graph/cpu/scan_rows.h"
#include "palimpsest/graph/step.h"

namespace palimpsest {
namespace {

float softplus(float x) {
  return x <= 20 ? std::log1p(std::exp(x)) : x;
}

}  // namespace

void scan(const Step& step, int layer, ggml_tensor* out, int thread, int threads) {
  const LayerState& shape = step.state(layer);
  const StateHeads& m = shape.state_heads;
  const ggml_tensor *x = out->src[0], *dt = out->src[1], *a = out->src[2], *b = out->src[3], *c = out->src[4],
                    *beta = out->src[5];
  const auto row = [](const ggml_tensor* t, int i, std::size_t stride) {
    return reinterpret_cast<float*>(static_cast<char*>(t->data) + at(i) * stride);
  };
  const std::size_t of_head = at(m.head_dim) * at(m.state_width);
  for (int i = 0; i < step.sequences(); ++i) {
    const SequenceTokens& tokens = step.attention(layer).tokens[i];
    const SequenceStep& sequence = step.input()[at(i)];
    RecurrentState& state = sequence.cache->state();
    for (int head = thread; head < m.heads; head += threads) {
      const std::size_t offset = shape.offset + shape.convolution_floats() + at(head) * of_head;
      const float* before = state.before() + offset;
      const float rate = *row(a, head, a->nb[1]);
      const std::size_t group = at(m.group(head));
      for (int t = 0; t < tokens.count; ++t) {
        const int token = tokens.first + t;
        float* const after = state.outcome(tokens.drafts ? t : 0) + offset;
        const float time = softplus(row(dt, token, dt->nb[1])[head]), decay = std::exp(time * rate);
        const float* const in = row(x, token, x->nb[2]) + at(head) * at(m.head_dim);
        const float* const key = row(b, token, b->nb[2]) + group * at(m.state_width);
        const float* const query = row(c, token, c->nb[2]) + group * at(m.state_width);
        float* const y = row(out, token, out->nb[1]) + at(head) * at(m.head_dim);
        scan_rows({.before = before,
                   .after = after,
                   .rows = m.head_dim,
                   .width = m.state_width,
                   .key = key,
                   .query = query,
                   .input = in,
                   .decay = decay,
                   .factor = beta == nullptr ? time : row(beta, token, beta->nb[1])[head],
                   .delta = beta != nullptr,
                   .out = y});
        before = after;
      }
    }
  }
}

}  // namespace palimpsest
