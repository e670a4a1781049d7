// The formulas of models in double precision: plain loops over whole sequences, no cache, no graph. Tests compose
// families from these; plain_llama() is here.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/types.h"
#include "palimpsest/model/hyperparameters.h"

namespace palimpsest::testing {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;  // a row for each token

class Plain {
 public:
  Plain(Hyperparameters hyper, GgufFile file) : h_(std::move(hyper)), file_(std::move(file)) {}

  const Hyperparameters& hyper() const { return h_; }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  Row row(const std::string& name, std::int64_t index = 0) const;  // of an f32 tensor; index 0 of a vector
  Matrix embedded(const std::vector<TokenId>& tokens) const;
  Matrix linear(const Matrix& x, const std::string& name) const;  // with the bias if there is one
  Matrix norm(Matrix x, const std::string& name, bool representative) const;
  // RoPE by pairs: dimensions (2i, 2i + 1) of each head rotate by position * base^(-2i / dims).
  Matrix turned(Matrix x, int heads) const;
  // Causal; `bias(head, distance)` is added to the scores.
  Matrix attention(
      const Matrix& q, const Matrix& k, const Matrix& v,
      const std::function<double(int, double)>& bias = [](int, double) { return 0.0; }) const;

  static Matrix map(Matrix x, double (*f)(double));
  static Matrix plus(Matrix a, const Matrix& b);
  static Matrix columns(const Matrix& x, std::size_t first, std::size_t count);  // first .. first + count of each row

 private:
  Matrix add_bias(Matrix x, const std::string& name) const;

  Hyperparameters h_;
  GgufFile file_;
};

std::string block(int layer);  // "blk.3."

// Logits of every token, with RoPE by pairs or none. Layers may lack the attention part or all of it but the output
// product, and may lack the feed-forward part.
Matrix plain_llama(const Plain& model, const std::vector<TokenId>& tokens);

}  // namespace palimpsest::testing
