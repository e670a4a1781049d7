// Layers with a recurrent state: short convolutions, Mamba 2, gated delta rule.
#include "palimpsest/graph/graph_builder.h"

#include <cmath>

namespace palimpsest {

// Recurrence, without the last product.
ggml_tensor* GraphBuilder::recurrent(int i, const LayerWeights& l, ggml_tensor* x) {
  if (f_.recurrence == Recurrence::kMamba2) return mamba(i, l, x);
  if (f_.recurrence == Recurrence::kDelta) return delta(i, l, x);
  ggml_tensor* all = product(l.recurrent_in, x);  // [3 width, tokens]
  const auto third = [&](int n) { return columns(all, h_.width, n * h_.width); };
  return ggml_mul(c_, third(1), path_.convolve(g_, i, ggml_mul(c_, third(0), third(2)), l.convolution));
}

ggml_tensor* GraphBuilder::mamba(int i, const LayerWeights& l, ggml_tensor* in) {
  const LayerState& s = h_.states[at(i)];
  const StateHeads& m = s.state_heads;
  const int inner = m.heads * m.head_dim;
  ggml_tensor* all = product(l.recurrent_in, in);  // z, channels, t
  ggml_tensor* mixed = path_.convolve(g_, i, columns(all, s.channels, inner), l.convolution);
  mixed = ggml_silu(c_, ggml_add(c_, mixed, l.convolution_bias));
  ggml_tensor* time = ggml_add(c_, ggml_cont(c_, columns(all, m.heads, inner + s.channels)), l.time_bias);
  ggml_tensor* x = heads(mixed, m.head_dim, m.heads);
  ggml_tensor* b = heads(mixed, m.state_width, m.groups, inner);
  ggml_tensor* c = heads(mixed, m.state_width, m.groups, inner + m.groups * m.state_width);
  ggml_tensor* y = ggml_reshape_3d(c_, path_.scan(g_, i, {x, time, l.decay, b, c}), m.head_dim, m.heads, g_.tokens);
  y = ggml_add(c_, y, ggml_mul(c_, x, l.skip));
  y = ggml_swiglu_split(c_, ggml_cont(c_, columns(all, inner, 0)), ggml_reshape_2d(c_, y, inner, g_.tokens));
  y = norm(ggml_reshape_3d(c_, y, inner / m.groups, m.groups, g_.tokens), l.gated_norm);
  return ggml_reshape_2d(c_, y, inner, g_.tokens);
}

ggml_tensor* GraphBuilder::delta(int i, const LayerWeights& l, ggml_tensor* in) {
  const LayerState& s = h_.states[at(i)];
  const StateHeads& m = s.state_heads;
  const int keys = m.groups * m.state_width;
  ggml_tensor *channels = product(l.recurrent_in, in), *gate = nullptr;
  if (h_.delta_in_one) {  // a group's q, k, v, z
    const int values = m.head_dim * (m.heads / m.groups), row = 2 * m.state_width + 2 * values;
    const auto rows = [&, all = channels](int width, int first) {
      return ggml_reshape_2d(c_, ggml_cont(c_, part(all, width, m.groups, row, first)), width * m.groups, g_.tokens);
    };
    gate = rows(values, 2 * m.state_width + values);
    channels = ggml_concat(c_, ggml_concat(c_, rows(m.state_width, 0), rows(m.state_width, m.state_width), 0),
                           rows(values, 2 * m.state_width), 0);
  }
  ggml_tensor* mixed = ggml_silu(c_, path_.convolve(g_, i, channels, l.convolution));
  ggml_tensor* q = ggml_l2_norm(c_, heads(mixed, m.state_width, m.groups), h_.norm_epsilon);
  ggml_tensor* k = ggml_l2_norm(c_, heads(mixed, m.state_width, m.groups, keys), h_.norm_epsilon);
  ggml_tensor* v = heads(mixed, m.head_dim, m.heads, 2 * keys);
  ggml_tensor *beta = nullptr, *time = nullptr;
  if (l.beta_time == nullptr) {
    beta = product(l.beta, in);
    time = product(l.time, in);
  } else {
    ggml_tensor* both = product(l.beta_time, in);
    const int each = m.heads / m.groups;
    const auto half = [&](int n) {
      return ggml_reshape_2d(c_, ggml_cont(c_, part(both, each, m.groups, 2 * each, n * each)), m.heads, g_.tokens);
    };
    beta = half(0);
    time = half(1);
  }
  const float scale = 1 / std::sqrt(static_cast<float>(m.state_width));
  ggml_tensor* y = path_.scan(g_, i,
                              {.x = v,
                               .time = ggml_add(c_, time, l.time_bias),
                               .decay = ggml_reshape_2d(c_, l.decay, 1, m.heads),
                               .b = k,
                               .c = ggml_scale(c_, q, scale),
                               .beta = ggml_sigmoid(c_, beta)});
  y = norm(ggml_reshape_3d(c_, y, m.head_dim, m.heads, g_.tokens), l.gated_norm);
  if (gate == nullptr) gate = product(l.recurrent_gate, in);
  return ggml_swiglu_split(c_, gate, ggml_reshape_2d(c_, y, gate->ne[0], g_.tokens));
}

}  // namespace palimpsest
