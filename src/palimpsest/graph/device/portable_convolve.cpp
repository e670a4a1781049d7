// Convolutions of recurrent layers as stock ggml operators. A sequence's state is an input and a result of the graph.
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
    State state = {.layer = layer,
                   .sequence = i,
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

}  // namespace palimpsest
