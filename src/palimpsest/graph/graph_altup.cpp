// AltUp (Gemma 3n; model/hyperparameters.h): the residual stream has several inputs per token.
#include "palimpsest/graph/graph_builder.h"

#include <cmath>

namespace palimpsest {

// AltUp. The residual stream is [width, inputs, tokens].
ggml_tensor* GraphBuilder::inputs_of(ggml_tensor* stream, int first, int count) {
  return ggml_cont(c_, ggml_view_3d(c_, stream, h_.width, count, g_.tokens, stream->nb[1], stream->nb[2],
                                    at(first) * stream->nb[1]));
}

ggml_tensor* GraphBuilder::first_input(ggml_tensor* stream) {
  return ggml_reshape_2d(c_, inputs_of(stream, 0, 1), h_.width, g_.tokens);
}

ggml_tensor* GraphBuilder::repeated(ggml_tensor* x, int inputs) {
  return ggml_repeat_4d(c_, as_input(x), h_.width, inputs, g_.tokens, 1);
}

ggml_tensor* GraphBuilder::as_long_as(ggml_tensor* x, ggml_tensor* like) {
  const auto length = [&](ggml_tensor* y) { return ggml_sqrt(c_, ggml_sum_rows(c_, ggml_sqr(c_, y))); };
  return ggml_div(c_, ggml_mul(c_, x, length(like)), length(x));
}

ggml_tensor* GraphBuilder::alt_up_begin(ggml_tensor* x) {
  const AltUp& a = h_.alt_up;
  return ggml_concat(c_, as_input(x), as_long_as(per_head(w_.altup_in, repeated(x, a.inputs - 1)), as_input(x)), 1);
}

ggml_tensor* GraphBuilder::alt_up_end(ggml_tensor* stream) {
  const int inputs = h_.alt_up.inputs;
  ggml_tensor* first = inputs_of(stream, 0, 1);
  ggml_tensor* others = as_long_as(per_head(w_.altup_out, inputs_of(stream, 1, inputs - 1)), first);
  ggml_tensor* sum = first_input(stream);
  for (int i = 0; i + 1 < inputs; ++i)
    sum = ggml_add(c_, sum, ggml_reshape_2d(c_, inputs_of(others, i, 1), h_.width, g_.tokens));
  sum = ggml_scale(c_, sum, 1 / static_cast<float>(inputs));
  return g_.row_ids == nullptr ? sum : ggml_get_rows(c_, sum, ggml_view_1d(c_, g_.row_ids, g_.rows, 0));
}

ggml_tensor* GraphBuilder::alt_up_routes(const LayerWeights& l, ggml_tensor* x) {  // [inputs, tokens]
  ggml_tensor* in = ggml_scale(c_, norm(x, l.altup_norm), 1 / static_cast<float>(h_.width));
  return ggml_tanh(c_, product(l.altup_router, in));
}

// Values below mean + sparsity * deviation of their row become 0; the others are what exceeds it.
ggml_tensor* GraphBuilder::sparse(ggml_tensor* x) {
  ggml_tensor* mean = ggml_mean(c_, x);
  ggml_tensor* squares = ggml_sum_rows(c_, ggml_sqr(c_, ggml_sub(c_, x, mean)));
  ggml_tensor* deviation = ggml_sqrt(c_, ggml_scale(c_, squares, 1 / static_cast<float>(x->ne[0] - 1)));
  return ggml_relu(c_, ggml_sub(c_, x, ggml_add(c_, mean, ggml_scale(c_, deviation, h_.alt_up.sparsity))));
}

ggml_tensor* GraphBuilder::alt_up_layer(int i, ggml_tensor* stream) {
  const LayerWeights& l = w_.layers[i];
  const AltUp& a = h_.alt_up;
  const float half = std::sqrt(0.5F);
  ggml_tensor* factors = product(l.altup_predict, alt_up_routes(l, first_input(stream)));
  ggml_tensor* by_dimension = ggml_cont(c_, ggml_permute(c_, stream, 1, 0, 2, 3));  // [inputs, width, tokens]
  stream =
      ggml_add(c_, ggml_mul_mat(c_, by_dimension, ggml_reshape_3d(c_, factors, a.inputs, a.inputs, g_.tokens)), stream);
  ggml_tensor* predicted = first_input(stream);

  ggml_tensor* in = norm(predicted, l.attention_norm);
  ggml_tensor* laurel = ggml_add(c_, norm(product(l.laurel_out, product(l.laurel_in, in)), l.laurel_norm), in);
  ggml_tensor* attended = norm(product(l.attention_output, attention(i, l, in)), l.post_attention_norm);
  ggml_tensor* x = ggml_scale(c_, ggml_add(c_, ggml_add(c_, attended, predicted), laurel), half);
  in = norm(x, l.feed_forward_norm);
  ggml_tensor* gate = product(l.gate, in);
  ggml_tensor* out = product(l.down, gated(i < a.sparse_layers ? sparse(gate) : gate, product(l.up, in)));
  x = ggml_add(c_, norm(out, l.post_feed_forward_norm), x);

  factors = ggml_scale_bias(c_, product(l.altup_correct, alt_up_routes(l, x)), 1, 1);
  ggml_tensor* change = repeated(ggml_sub(c_, x, predicted), a.inputs);
  stream = ggml_add(c_, ggml_mul(c_, change, ggml_reshape_3d(c_, factors, 1, a.inputs, g_.tokens)), stream);

  // To all inputs but the first.
  x = of_own_embedding(l, ggml_mul(c_, first_input(stream), l.altup_scale), own_embedding(i));
  return ggml_concat(c_, inputs_of(stream, 0, 1), ggml_add(c_, inputs_of(stream, 1, a.inputs - 1), as_input(x)), 1);
}

}  // namespace palimpsest
