#include "palimpsest/model/lora.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "palimpsest/core/error.h"

namespace palimpsest {

namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

// Reads rows [first, first + rows), of ne[0] numbers each.
std::vector<float> floats_of(const GgufTensor& t, std::int64_t first, std::int64_t rows) {
  std::vector<float> out(static_cast<std::size_t>(rows * t.ne[0]));
  const std::byte* from = t.data + static_cast<std::size_t>(first) * ggml_row_size(t.type, t.ne[0]);
  if (t.type == GGML_TYPE_F32)
    std::memcpy(out.data(), from, out.size() * sizeof(float));
  else
    ggml_get_type_traits(t.type)->to_float(from, out.data(), static_cast<std::int64_t>(out.size()));
  return out;
}

bool readable(const GgufTensor& t) {
  return t.type == GGML_TYPE_F32 || ggml_get_type_traits(t.type)->to_float != nullptr;
}

// Starts after a page's begin, so that its first bytes stay when its pages are discarded: they are in the fingerprint.
std::shared_ptr<std::byte> new_memory(std::size_t bytes) {
  constexpr std::size_t kPage = 4096, kSkip = 64;
  auto* const base = static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kSkip + kPage - 1) / kPage * kPage));
  if (base == nullptr) fail("no memory for a merged tensor of {} MiB", bytes >> 20);
  return {base + kSkip, [base](std::byte*) { std::free(base); }};
}

struct Adapter {
  const GgufTensor *a, *b;
  float factor;
};

void merge(GgufFile& model, const GgufTensor& t, const Adapter& adapter) {
  const ggml_type type = ggml_is_quantized(t.type) ? GGML_TYPE_Q8_0 : t.type;
  const std::size_t row = ggml_row_size(type, t.ne[0]);
  const std::int64_t columns = t.ne[0], rows = t.ne[1], rank = adapter.b->ne[0];
  const auto out = new_memory(row * static_cast<std::size_t>(rows * t.ne[2]));
  // The embedding's rows belong to tokens: there, A has the rank as its rows' length, and B the width.
  const bool flipped = t.name == "token_embd.weight";
  for (std::int64_t batch = 0; batch < t.ne[2]; ++batch) {
    // [rank][columns] and [rows][rank]
    std::vector<float> down = floats_of(*adapter.a, batch * adapter.a->ne[1], adapter.a->ne[1]);
    std::vector<float> up = floats_of(*adapter.b, batch * adapter.b->ne[1], adapter.b->ne[1]);
    if (flipped) {
      std::vector<float> transposed(up.size());  // B [columns][rank] -> [rank][columns]
      for (std::int64_t c = 0; c < columns; ++c)
        for (std::int64_t r = 0; r < rank; ++r)
          transposed[static_cast<std::size_t>(r * columns + c)] = up[static_cast<std::size_t>(c * rank + r)];
      up = std::exchange(down, std::move(transposed));
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<float> values = floats_of(t, batch * rows + i, 1);
      for (std::int64_t r = 0; r < rank; ++r) {
        const float weight = adapter.factor * up[static_cast<std::size_t>(i * rank + r)];
        const float* const from = down.data() + r * columns;
        for (std::int64_t c = 0; c < columns; ++c) values[static_cast<std::size_t>(c)] += weight * from[c];
      }
      ggml_quantize_chunk(type, values.data(), out.get() + static_cast<std::size_t>(batch * rows + i) * row, 0, 1,
                          columns, nullptr);
    }
  }
  model.replace(t.name, type, out, row * static_cast<std::size_t>(rows * t.ne[2]));
}

bool fits(const GgufTensor& t, const GgufTensor& a, const GgufTensor& b) {
  if (t.ne[2] != a.ne[2] || t.ne[2] != b.ne[2] || a.ne[3] != 1 || b.ne[3] != 1 || t.ne[3] != 1) return false;
  if (t.name == "token_embd.weight") return a.ne[0] == b.ne[0] && a.ne[1] == t.ne[1] && b.ne[1] == t.ne[0];
  return a.ne[0] == t.ne[0] && a.ne[1] == b.ne[0] && b.ne[1] == t.ne[1];
}

}  // namespace

void merge_lora(GgufFile& model, const std::string& path, float scale) {
  const GgufFile file = GgufFile::open(path);
  if (file.text("general.type") != "adapter" || file.text("adapter.type") != "lora")
    fail("{}: is not a LoRA adapter; make one with llama.cpp's convert_lora_to_gguf.py", path);
  const std::string architecture = file.text("general.architecture").value_or("");
  if (architecture != model.text("general.architecture"))
    fail("{}: is an adapter of a {} model; the model is {}", path, printable(architecture),
         printable(model.text("general.architecture").value_or("")));
  const double alpha = file.number("adapter.lora.alpha").value_or(0);
  if (file.tensors().empty()) fail("{}: has no tensors: damaged", path);
  for (const GgufTensor& a : file.tensors()) {
    if (a.name.ends_with(kB) && file.find(a.name.substr(0, a.name.size() - kB.size()) + std::string(kA)) != nullptr)
      continue;
    if (!a.name.ends_with(kA))
      fail("{}: tensor {} is not part of a LoRA adapter as supported here", path, printable(a.name));
    const std::string name = a.name.substr(0, a.name.size() - kA.size());
    const GgufTensor *const t = model.find(name), *const b = file.find(name + std::string(kB));
    if (t == nullptr) fail("{}: adapts tensor {}, which the model does not have", path, printable(name));
    if (b == nullptr) fail("{}: tensor {}{} is missing: damaged", path, printable(name), kB);
    if (!fits(*t, a, *b) || !readable(a) || !readable(*b) || !readable(*t))
      fail("{}: the shapes or types of its tensors {} do not fit the model's: it adapts another model", path,
           printable(name));
    merge(model, *t, {&a, b, scale * (alpha == 0 ? 1 : static_cast<float>(alpha) / static_cast<float>(b->ne[0]))});
  }
}

}  // namespace palimpsest
