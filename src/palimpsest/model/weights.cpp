#include "palimpsest/model/weights.h"

#include <cassert>
#include <cstring>

namespace palimpsest {

namespace {

void read_row(const GgufTensor& t, std::int64_t index, float* out) {
  const std::size_t row_bytes = ggml_row_size(t.type, t.ne[0]);
  const std::byte* row = t.data + static_cast<std::size_t>(index) * row_bytes;
  if (t.type == GGML_TYPE_F32)
    std::memcpy(out, row, row_bytes);
  else
    ggml_get_type_traits(t.type)->to_float(row, out, t.ne[0]);
}

}  // namespace

void Weights::embedding_row(TokenId token, float* out) const {
  assert(token >= 0 && token < embedding->ne[1]);
  read_row(*embedding, token, out);
}

void Weights::per_layer_row(TokenId token, float* out) const {
  assert(token >= 0 && token < per_layer_embedding->ne[1]);
  read_row(*per_layer_embedding, token, out);
}

void Weights::position_row(int position, float* out) const {
  assert(position >= 0 && position < positions->ne[1]);
  read_row(*positions, position, out);
}

const Panels* Weights::panels_of(const ggml_tensor* matrix) const {
  const auto found = panels.find(matrix);
  return found == panels.end() ? nullptr : &found->second;
}

}  // namespace palimpsest
