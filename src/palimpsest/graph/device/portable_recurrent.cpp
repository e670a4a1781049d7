// Recurrent layers as stock ggml operators. A sequence's state is an input and a result of the graph.
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
    const StepTokens& tokens = step_->attention(layer).tokens[i];
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

ggml_tensor* PortablePath::scan(DecoderGraph& graph, int layer, ggml_tensor* x, ggml_tensor* time, ggml_tensor* decay,
                                ggml_tensor* b, ggml_tensor* c) {
  auto& inputs = static_cast<Inputs&>(*graph.path_inputs);
  ggml_context* context = graph.context.get();
  const LayerState& shape = step_->state(layer);
  const Mamba2& m = shape.mamba;
  const std::int64_t rows = std::int64_t{m.heads} * m.head_dim;
  if (inputs.first_state == nullptr) {
    inputs.first_state = ggml_new_tensor_1d(context, GGML_TYPE_I32, 1);
    ggml_set_input(inputs.first_state);
  }
  ggml_tensor* out = nullptr;
  for (int i = 0; i < step_->sequences(); ++i) {
    const StepTokens& tokens = step_->attention(layer).tokens[i];
    const auto own = [&](ggml_tensor* t) {  // [width, count, the sequence's tokens]
      return ggml_view_3d(context, t, t->ne[0], t->ne[1], tokens.count, t->nb[1], t->nb[2],
                          at(tokens.first) * t->nb[2]);
    };
    State state = {.sequence = i,
                   .offset = shape.offset + shape.convolution_floats(),
                   .before = ggml_new_tensor_3d(context, GGML_TYPE_F32, m.state_width, m.head_dim, m.heads),
                   .after = nullptr};
    ggml_set_input(state.before);
    ggml_tensor* own_time =
        ggml_view_2d(context, time, m.heads, tokens.count, time->nb[1], at(tokens.first) * time->nb[1]);
    ggml_tensor* all =
        ggml_ssm_scan(context, state.before, own(x), own_time, decay, own(b), own(c), inputs.first_state, 1);
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
