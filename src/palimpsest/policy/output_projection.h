// The output projections W_o of a model's attention layers, read from its file as they are needed: for policies that
// weigh a value by what it adds to the hidden state. The file is mapped; no copy of the weights is kept. As in the
// file: adapters (LoRA) do not count, nor do biases.
//
// Tensor blk.N.attn_output.weight: [hidden size] rows of [query heads * value_dim], of any type that ggml converts.
#pragma once

#include <fmt/format.h>
#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/core/vectors.h"
#include "palimpsest/policy/policy.h"

namespace palimpsest {

class OutputProjection {
 public:
  OutputProjection() = default;
  // Throws Error: no file, or heads that are not one shape in all layers; `policy` is its name, for the message.
  OutputProjection(const PolicyModel& model, std::string_view policy) : width_(model.value_dim), group_(model.group) {
    const auto refuse = [&](std::string_view why) {
      fail("policy {}: size=projected needs the model's output projections: {}; use size=value", policy, why);
    };
    std::error_code ignored;
    if (model.path.empty() || !std::filesystem::exists(model.path, ignored)) refuse("this model has no file");
    file_ = std::make_shared<const GgufFile>(GgufFile::open(model.path));
    kv_heads_ = std::max(1, model.kv_heads);
    for (int layer = 0; layer < model.layers; ++layer)
      if (const GgufTensor* const found = file_->find(fmt::format("blk.{}.attn_output.weight", layer)))
        layers_.push_back(found);
    const std::int64_t row = std::int64_t{kv_heads_} * group_ * width_;
    if (at(model.heads) != layers_.size() * at(kv_heads_) ||
        std::ranges::any_of(layers_, [&](const GgufTensor* t) { return t->ne[0] != row || t->ne[2] != 1; }))
      refuse("its layers have heads of different shapes, or values that are stored compressed");
    for (const GgufTensor* const t : layers_)
      if (t->type != GGML_TYPE_F32 && ggml_get_type_traits(t->type)->to_float == nullptr)
        refuse(fmt::format("{} is of type {}", t->name, ggml_type_name(t->type)));
  }

  // For each row v of `values`, of KV head `table`: the mean over its query heads h of ||W_o^h v||_1.
  void norms(int table, const Rows& values, std::span<float> out) const {
    const GgufTensor& tensor = *layers_[at(table / kv_heads_)];
    thread_local std::vector<float> weights, products;
    thread_local std::vector<double> sums;
    // Blocks of the type that cover the KV head's columns.
    const std::int64_t block = ggml_blck_size(tensor.type), columns = std::int64_t{group_} * width_;
    const std::int64_t first = (table % kv_heads_) * columns, from = first / block * block;
    const std::int64_t read = (first + columns + block - 1) / block * block - from;
    const std::size_t row_bytes = ggml_row_size(tensor.type, tensor.ne[0]), skipped = ggml_row_size(tensor.type, from);
    weights.resize(at(kRows) * static_cast<std::size_t>(read));
    products.resize(at(kRows));
    sums.assign(out.size(), 0);
    for (std::int64_t row = 0; row < tensor.ne[1]; row += kRows) {
      const int rows = static_cast<int>(std::min<std::int64_t>(kRows, tensor.ne[1] - row));
      for (int r = 0; r < rows; ++r)
        convert(tensor.type, tensor.data + static_cast<std::size_t>(row + r) * row_bytes + skipped,
                weights.data() + std::int64_t{r} * read, read);
      for (int member = 0; member < group_; ++member) {
        const Rows part{weights.data() + (first - from) + std::int64_t{member} * width_, rows, width_, read};
        for (int i = 0; i < values.count; ++i) {
          const auto of_rows = std::span(products).first(at(rows));
          dot_rows(part, values[i], of_rows);
          float sum = 0;
          for (const float x : of_rows) sum += std::abs(x);
          sums[at(i)] += double{sum};
        }
      }
    }
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sums[i] / group_);
  }

 private:
  static constexpr int kRows = 64;  // of W_o, converted at once

  static void convert(ggml_type type, const std::byte* from, float* to, std::int64_t count) {
    if (type == GGML_TYPE_F32)
      std::copy_n(from, static_cast<std::size_t>(count) * sizeof(float), reinterpret_cast<std::byte*>(to));
    else
      ggml_get_type_traits(type)->to_float(from, to, count);
  }

  int width_ = 0, group_ = 1, kv_heads_ = 1;
  std::shared_ptr<const GgufFile> file_;
  std::vector<const GgufTensor*> layers_;  // those with attention
};

}  // namespace palimpsest
