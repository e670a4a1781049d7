// Recurrent layers as stock ggml operators. A sequence's state is an input and a result of the graph.
#include <cmath>

#include "palimpsest/graph/device/portable.h"
#include "palimpsest/graph/graph.h"
#include "palimpsest/graph/step.h"

namespace palimpsest {

ggml_tensor* PortablePath::convolve(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* weight) {
  if (graph.path_inputs == nullptr) make_inputs(graph);
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
  ggml_context* c = graph.context.get();
  const std::int64_t channels = x->ne[0], kept = weight->ne[0] - 1;
  ggml_tensor* out = nullptr;
  for (int i = 0; i < step_->sequences(); ++i) {
    const SequenceTokens& tokens = step_->attention(layer).tokens[i];
    State state = {.sequence = i,
                   .offset = step_->state(layer).offset,
                   .before = ggml_new_tensor_2d(c, GGML_TYPE_F32, channels, kept),
                   .after = nullptr};
    ggml_set_input(state.before);
    ggml_tensor* own = ggml_view_2d(c, x, channels, tokens.count, x->nb[1], at(tokens.first) * x->nb[1]);
    ggml_tensor* all = ggml_concat(c, state.before, ggml_cont(c, own), 1);  // [channels, kept + tokens]
    state.after = ggml_cont(c, ggml_view_2d(c, all, channels, kept, all->nb[1], at(tokens.count) * all->nb[1]));
    ggml_set_output(state.after);
    ggml_build_forward_expand(graph.graph, state.after);
    ggml_tensor* by_channel = ggml_cont(c, ggml_transpose(c, all));
    ggml_tensor* mixed = ggml_ssm_conv(c, ggml_reshape_3d(c, by_channel, by_channel->ne[0], channels, 1), weight);
    mixed = ggml_reshape_2d(c, mixed, channels, tokens.count);
    out = out == nullptr ? mixed : ggml_concat(c, out, mixed, 1);
    inputs.states.push_back(state);
  }
  return out;
}

namespace {

// Mamba-2: the results of all tokens, then the state after them.
ggml_tensor* mamba(ggml_context* c, ggml_tensor* state, const ScanInputs& in, ggml_tensor* first_state) {
  return ggml_ssm_scan(c, state, in.x, in.time, in.decay, in.b, in.c, first_state, 1);
}

// The delta rule: likewise. ggml's operator scales queries, and takes groups to be tiled.
ggml_tensor* delta(ggml_context* c, ggml_tensor* state, const ScanInputs& in, const StateHeads& m) {
  const std::int64_t tokens = in.x->ne[2];
  const auto keys = [&](ggml_tensor* t) {
    if (m.tiled) return ggml_cont(c, t);
    ggml_tensor* each = ggml_reshape_4d(c, ggml_cont(c, t), m.state_width, 1, m.groups, tokens);
    each = ggml_repeat_4d(c, each, m.state_width, m.heads / m.groups, m.groups, tokens);
    return ggml_reshape_3d(c, each, m.state_width, m.heads, tokens);
  };
  const auto numbers = [&](ggml_tensor* t) { return ggml_reshape_3d(c, t, 1, m.heads, tokens); };
  ggml_tensor* decay = ggml_reshape_2d(c, in.decay, m.heads, 1);
  ggml_tensor* gate = ggml_mul(c, ggml_softplus(c, ggml_cont(c, in.time)), decay);
  ggml_tensor* queries = ggml_scale(c, keys(in.c), std::sqrt(static_cast<float>(m.state_width)));
  return ggml_gated_delta_net(c, queries, keys(in.b), ggml_cont(c, in.x), numbers(gate), numbers(ggml_cont(c, in.beta)),
                              state, 1);
}

}  // namespace

ggml_tensor* PortablePath::scan(DecoderGraph& graph, int layer, const ScanInputs& in) {
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
  ggml_context* context = graph.context.get();
  const LayerState& shape = step_->state(layer);
  const StateHeads& m = shape.state_heads;
  const std::int64_t rows = std::int64_t{m.heads} * m.head_dim;
  if (in.beta == nullptr && inputs.first_state == nullptr) {
    inputs.first_state = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
    ggml_set_input(inputs.first_state);
  }
  ggml_tensor* out = nullptr;
  for (int i = 0; i < step_->sequences(); ++i) {
    const SequenceTokens& tokens = step_->attention(layer).tokens[i];
    const auto heads = [&](ggml_tensor* t) {  // [width, count, the sequence's tokens]
      return ggml_view_3d(context, t, t->ne[0], t->ne[1], tokens.count, t->nb[1], t->nb[2],
                          at(tokens.first) * t->nb[2]);
    };
    const auto numbers = [&](ggml_tensor* t) {  // [heads, the sequence's tokens]
      return ggml_view_2d(context, t, m.heads, tokens.count, t->nb[1], at(tokens.first) * t->nb[1]);
    };
    ScanInputs own = {heads(in.x), numbers(in.time), in.decay, heads(in.b), heads(in.c)};
    if (in.beta != nullptr) own.beta = numbers(in.beta);
    State state = {.sequence = i,
                   .offset = shape.offset + shape.convolution_floats(),
                   .before = ggml_new_tensor_3d(context, GGML_TYPE_F32, m.state_width, m.head_dim, m.heads),
                   .after = nullptr};
    ggml_set_input(state.before);
    ggml_tensor* all = in.beta == nullptr ? mamba(context, state.before, own, inputs.first_state)
                                          : delta(context, state.before, own, m);
    const std::size_t row = static_cast<std::size_t>(rows) * sizeof(float), results = at(tokens.count) * row;
    state.after = ggml_cont(context, ggml_view_1d(context, all, ggml_nelements(state.before), results));
    ggml_set_output(state.after);
    ggml_build_forward_expand(graph.graph, state.after);
    ggml_tensor* y = ggml_cont(context, ggml_view_2d(context, all, rows, tokens.count, row, 0));
    out = out == nullptr ? y : ggml_concat(context, out, y, 1);
    inputs.states.push_back(state);
  }
  return out;
}

}  // namespace palimpsest
