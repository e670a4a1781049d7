#include "tests/support/plain_model.h"

#include <cmath>
#include <stdexcept>

namespace palimpsest::testing {
namespace {

double silu(double x) {
  return x / (1 + std::exp(-x));
}

}  // namespace

Row Plain::row(const std::string& name, std::int64_t index) const {
  const GgufTensor* t = file_.find(name);
  if (t == nullptr || t->type != GGML_TYPE_F32) throw std::runtime_error("no tensor in f32: " + name);
  const float* from = reinterpret_cast<const float*>(t->data) + index * t->ne[0];
  return Row(from, from + t->ne[0]);
}

Matrix Plain::embedded(const std::vector<TokenId>& tokens) const {
  Matrix x;
  for (const TokenId t : tokens) x.push_back(row("token_embd.weight", t));
  return x;
}

Matrix Plain::linear(const Matrix& x, const std::string& name) const {
  const GgufTensor* t = file_.find(name + ".weight");
  if (t == nullptr) throw std::runtime_error("no tensor " + name);
  Matrix out(x.size(), Row(static_cast<std::size_t>(t->ne[1])));
  for (std::int64_t r = 0; r < t->ne[1]; ++r) {
    const Row w = row(name + ".weight", r);
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t d = 0; d < w.size(); ++d) out[i][static_cast<std::size_t>(r)] += w[d] * x[i][d];
  }
  return add_bias(std::move(out), name + ".bias");
}

Matrix Plain::add_bias(Matrix x, const std::string& name) const {
  if (!has(name)) return x;
  const Row bias = row(name);
  for (Row& r : x)
    for (std::size_t d = 0; d < r.size(); ++d) r[d] += bias[d];
  return x;
}

Matrix Plain::norm(Matrix x, const std::string& name, bool representative) const {
  const Row weight = row(name + ".weight");
  for (Row& r : x) {
    double mean = 0, square = 0;
    for (const double v : r) mean += representative ? v / static_cast<double>(r.size()) : 0;
    for (const double v : r) square += (v - mean) * (v - mean) / static_cast<double>(r.size());
    for (std::size_t d = 0; d < r.size(); ++d)
      r[d] = (r[d] - mean) / std::sqrt(square + static_cast<double>(h_.norm_epsilon)) * weight[d];
  }
  return add_bias(std::move(x), name + ".bias");
}

Matrix Plain::turned(Matrix x, int heads) const {
  const int dims = h_.rope.dims, width = h_.geometry.max_key_width();
  for (std::size_t p = 0; p < x.size(); ++p)
    for (int h = 0; h < heads; ++h)
      for (int i = 0; i < dims / 2; ++i) {
        const double angle = static_cast<double>(p) * std::pow(h_.rope.base, -2.0 * i / dims);
        double& a = x[p][static_cast<std::size_t>(h * width + 2 * i)];
        double& b = x[p][static_cast<std::size_t>(h * width + 2 * i + 1)];
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
  return x;
}

Matrix Plain::attention(const Matrix& q, const Matrix& k, const Matrix& v,
                        const std::function<double(int, double)>& bias) const {
  const auto dim = static_cast<std::size_t>(h_.geometry.max_key_width());
  const int heads = static_cast<int>(q[0].size() / dim), group = static_cast<int>(q[0].size() / k[0].size());
  Matrix out(q.size(), Row(q[0].size()));
  for (int h = 0; h < heads; ++h) {
    const std::size_t at = static_cast<std::size_t>(h) * dim;
    const std::size_t kv = static_cast<std::size_t>(h / group) * dim;
    for (std::size_t i = 0; i < q.size(); ++i) {
      Row weight(i + 1);
      double greatest = -INFINITY, sum = 0;
      for (std::size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += q[i][at + d] * k[j][kv + d];
        weight[j] = score / std::sqrt(static_cast<double>(dim)) + bias(h, static_cast<double>(i - j));
        greatest = std::max(greatest, weight[j]);
      }
      for (double& w : weight) sum += w = std::exp(w - greatest);
      for (std::size_t j = 0; j <= i; ++j)
        for (std::size_t d = 0; d < dim; ++d) out[i][at + d] += weight[j] / sum * v[j][kv + d];
    }
  }
  return out;
}

Matrix Plain::map(Matrix x, double (*f)(double)) {
  for (Row& r : x)
    for (double& v : r) v = f(v);
  return x;
}

Matrix Plain::plus(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t d = 0; d < a[i].size(); ++d) a[i][d] += b[i][d];
  return a;
}

Matrix Plain::columns(const Matrix& x, std::size_t first, std::size_t count) {
  Matrix out;
  for (const Row& r : x)
    out.emplace_back(r.begin() + static_cast<std::ptrdiff_t>(first),
                     r.begin() + static_cast<std::ptrdiff_t>(first + count));
  return out;
}

std::string block(int layer) {
  return "blk." + std::to_string(layer) + ".";
}

namespace {

Matrix gated(const Plain& m, const std::string& block, const Matrix& in) {
  Matrix gate = Plain::map(m.linear(in, block + "ffn_gate"), silu);
  const Matrix up = m.linear(in, block + "ffn_up");
  for (std::size_t t = 0; t < gate.size(); ++t)
    for (std::size_t d = 0; d < gate[t].size(); ++d) gate[t][d] *= up[t][d];
  return m.linear(gate, block + "ffn_down");
}

}  // namespace

Matrix plain_llama(const Plain& m, const std::vector<TokenId>& tokens) {
  const auto turned = [&](Matrix rows, int heads) {
    return m.hyper().rope.kind == RopeKind::kNone ? rows : m.turned(std::move(rows), heads);
  };
  Matrix x = m.embedded(tokens);
  for (int i = 0; i < m.hyper().layers; ++i) {
    const std::string b = block(i);
    const Matrix in = m.has(b + "attn_norm.weight") ? m.norm(x, b + "attn_norm", false) : x;
    if (!m.has(b + "attn_q.weight")) {  // only the output product, or nothing
      if (m.has(b + "attn_output.weight")) x = Plain::plus(x, m.linear(in, b + "attn_output"));
      if (m.has(b + "ffn_up.weight")) x = Plain::plus(x, gated(m, b, m.norm(x, b + "ffn_norm", false)));
      continue;
    }
    const Matrix q = turned(m.linear(in, b + "attn_q"), m.hyper().geometry.layer(i).query_heads);
    const Matrix k = turned(m.linear(in, b + "attn_k"), m.hyper().geometry.layer(i).kv_heads);
    x = Plain::plus(x, m.linear(m.attention(q, k, m.linear(in, b + "attn_v")), b + "attn_output"));
    if (m.has(b + "ffn_up.weight")) x = Plain::plus(x, gated(m, b, m.norm(x, b + "ffn_norm", false)));
  }
  return m.linear(m.norm(x, "output_norm", false), m.has("output.weight") ? "output" : "token_embd");
}

}  // namespace palimpsest::testing
