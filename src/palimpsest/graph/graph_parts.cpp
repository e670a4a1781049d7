// Operators that all parts of the graph use.
#include "palimpsest/graph/graph_builder.h"

namespace palimpsest {

ggml_tensor* GraphBuilder::norm(ggml_tensor* x,
                                const NormWeights& weights) {  // returns x if the model has no such norm
  if (weights.bare) return ggml_norm(c_, x, h_.norm_epsilon);
  if (weights.weight == nullptr) return x;
  ggml_tensor* normed =
      f_.norm == Norm::kRms ? ggml_rms_norm(c_, x, h_.norm_epsilon) : ggml_norm(c_, x, h_.norm_epsilon);
  return plus(ggml_mul(c_, normed, weights.weight), weights.bias);
}

ggml_tensor* GraphBuilder::product(ggml_tensor* weight, ggml_tensor* x) {
  if (const Panels* const panels = w_.panels_of(weight)) return g_.products->multiply(c_, *panels, x);
  if (!g_.rows_alone) return ggml_mul_mat(c_, weight, x);
  // ggml chooses kernels by the number of rows, and multiplies the matrices of a batch each on its own: here, rows.
  ggml_tensor* rows = ggml_mul_mat(c_, weight, ggml_reshape_3d(c_, x, x->ne[0], 1, x->ne[1]));
  return ggml_reshape_2d(c_, rows, rows->ne[0], rows->ne[2]);
}

ggml_tensor* GraphBuilder::soft_capped(ggml_tensor* x, float cap) {
  return cap > 0 ? ggml_scale(c_, ggml_tanh(c_, ggml_scale(c_, x, 1 / cap)), cap) : x;
}

ggml_tensor* GraphBuilder::act(ggml_tensor* x, int i) {
  switch (f_.activation) {
    case Activation::kSilu:
      return ggml_silu(c_, x);
    case Activation::kGelu:
      return ggml_gelu(c_, x);
    case Activation::kRelu:
      return ggml_relu(c_, x);
    case Activation::kReluSquared:
      return ggml_sqr(c_, ggml_relu(c_, x));
    case Activation::kXielu: {
      const auto& [alpha_n, alpha_p, beta, eps] = h_.xielu[at(i)];
      return ggml_xielu(c_, x, alpha_n, alpha_p, beta, eps);
    }
    case Activation::kClampedSwiglu:  // only gated
      break;
  }
  return x;
}

ggml_tensor* GraphBuilder::gated(ggml_tensor* gate, ggml_tensor* up, float limit) {
  if (gate == nullptr) return act(up);
  if (limit > 0) {
    gate = ggml_clamp(c_, ggml_silu(c_, gate), -INFINITY, limit);
    return ggml_mul(c_, gate, ggml_clamp(c_, up, -limit, limit));
  }
  if (f_.activation == Activation::kSilu) return ggml_swiglu_split(c_, gate, up);
  if (f_.activation == Activation::kGelu) return ggml_geglu_split(c_, gate, up);
  if (f_.activation == Activation::kClampedSwiglu) return ggml_swiglu_oai(c_, gate, up, 1.702F, 7.0F);
  return ggml_reglu_split(c_, gate, up);
}

ggml_tensor* GraphBuilder::gated_halves(ggml_tensor* x, float limit) {
  if (limit > 0) {
    const std::int64_t own = x->ne[0] / 2;
    const auto half = [&](std::int64_t first) {
      return ggml_cont(c_, ggml_view_3d(c_, x, own, x->ne[1], x->ne[2], x->nb[1], x->nb[2], first * x->nb[0]));
    };
    return gated(half(0), half(own), limit);
  }
  if (f_.activation == Activation::kSilu) return ggml_swiglu(c_, x);
  if (f_.activation == Activation::kGelu) return ggml_geglu(c_, x);
  return ggml_reglu(c_, x);
}

// A view of `count` results of a product: [count, tokens].
ggml_tensor* GraphBuilder::columns(ggml_tensor* x, int count, int first) {
  return ggml_view_2d(c_, x, count, g_.tokens, x->nb[1], at(first) * sizeof(float));
}

// A view of some rows of a product as heads: [dim, heads, tokens].
ggml_tensor* GraphBuilder::heads(ggml_tensor* x, int dim, int count, int first_row) {
  return ggml_view_3d(c_, x, dim, count, g_.tokens, dim * sizeof(float), x->nb[1], first_row * sizeof(float));
}

// The same, of `width` from `first` on of each head's `row` numbers.
ggml_tensor* GraphBuilder::part(ggml_tensor* x, int width, int count, int row, int first) {
  return ggml_view_3d(c_, x, width, count, g_.tokens, row * sizeof(float), x->nb[1], first * sizeof(float));
}

// A product of each head's row with the head's matrix: [in, out, heads] x [in, heads, tokens] -> [out, heads,
// tokens].
ggml_tensor* GraphBuilder::per_head(ggml_tensor* weight, ggml_tensor* x) {
  const std::int64_t in = x->ne[0], count = x->ne[1], tokens = x->ne[2], out = weight->ne[1];
  if (tokens == 1 || g_.rows_alone) {  // a row alone has the same bits in any step
    ggml_tensor* rows = ggml_reshape_4d(c_, ggml_cont(c_, x), in, 1, count, tokens);
    return ggml_reshape_3d(c_, ggml_mul_mat(c_, weight, rows), out, count, tokens);
  }
  ggml_tensor* by_head = ggml_cont(c_, ggml_permute(c_, x, 0, 2, 1, 3));
  return ggml_cont(c_, ggml_permute(c_, ggml_mul_mat(c_, weight, by_head), 0, 2, 1, 3));
}

}  // namespace palimpsest
