#include "palimpsest/graph/cpu/scan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "palimpsest/graph/step.h"

namespace palimpsest {
namespace {

float softplus(float x) {
  return x <= 20 ? std::log1p(std::exp(x)) : x;
}

// One row of a head's state, [size]: after = before * decay + b * input. Returns
// after * c, in kLanes partial sums: their order depends on no CPU.
float step_row(const float* before, float* after, const float* b, const float* c, float decay, float input, int size) {
  std::array<float, StateHeads::kLanes> sums{};
  for (int j = 0; j < size; j += StateHeads::kLanes) {
    std::array<float, StateHeads::kLanes> next;  // `after` may be `before`
    for (std::size_t lane = 0; lane < next.size(); ++lane) next[lane] = before[lane] * decay + b[lane] * input;
    for (std::size_t lane = 0; lane < next.size(); ++lane) sums[lane] += next[lane] * c[lane];
    std::ranges::copy(next, after);
    before += next.size(), after += next.size(), b += next.size(), c += next.size();
  }
  float sum = 0;
  for (const float each : sums) sum += each;
  return sum;
}

// The same of the delta rule: after = before * decay, then + b * beta * (input - after * b).
float delta_row(const float* before, float* after, const float* b, const float* c, float decay, float beta, float input,
                int size) {
  std::array<float, StateHeads::kLanes> sums{};
  for (int j = 0; j < size; j += StateHeads::kLanes)
    for (std::size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += before[at(j) + lane] * b[at(j) + lane];
  float known = 0;
  for (const float each : sums) known += each;
  return step_row(before, after, b, c, decay, beta * (input - known * decay), size);
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
    const StepTokens& tokens = step.attention(layer).tokens[i];
    const SequenceStep& sequence = step.input()[at(i)];
    RecurrentState& state = sequence.cache->state();
    for (int head = thread; head < m.heads; head += threads) {
      const std::size_t offset = shape.offset + shape.convolution_floats() + at(head) * of_head;
      const float* before = state.before() + offset;
      const float rate = *row(a, head, a->nb[1]);
      const std::size_t group = at(m.group(head));
      for (int t = 0; t < tokens.count; ++t) {
        const int token = tokens.first + t;
        float* const after = state.outcome(sequence.drafts ? t : 0) + offset;
        const float time = softplus(row(dt, token, dt->nb[1])[head]), decay = std::exp(time * rate);
        const float* const in = row(x, token, x->nb[2]) + at(head) * at(m.head_dim);
        const float* const key = row(b, token, b->nb[2]) + group * at(m.state_width);
        const float* const query = row(c, token, c->nb[2]) + group * at(m.state_width);
        float* const y = row(out, token, out->nb[1]) + at(head) * at(m.head_dim);
        for (int d = 0; d < m.head_dim; ++d) {
          const std::size_t at_row = at(d) * at(m.state_width);
          const float* from = before + at_row;
          y[d] = beta == nullptr ? step_row(from, after + at_row, key, query, decay, in[d] * time, m.state_width)
                                 : delta_row(from, after + at_row, key, query, decay,
                                             row(beta, token, beta->nb[1])[head], in[d], m.state_width);
        }
        before = after;
      }
    }
  }
}

}  // namespace palimpsest
