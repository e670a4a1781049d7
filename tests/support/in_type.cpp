#include "tests/support/in_type.h"

#include <ggml-cpp.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <vector>

namespace palimpsest::testing {

namespace {

// Vectors, and rows that are no whole number of the type's blocks, stay in f32.
ggml_type type_of(const ggml_tensor& t, ggml_type type) {
  return ggml_n_dims(&t) > 1 && t.ne[0] % ggml_blck_size(type) == 0 ? type : GGML_TYPE_F32;
}

void write(const std::string& from, ggml_type type, const std::string& to) {
  ggml_context* loaded = nullptr;
  const gguf_context_ptr source(gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &loaded}));
  const ggml_context_ptr tensors(loaded);
  if (!source) throw std::runtime_error("no GGUF file: " + from);
  const gguf_context_ptr target(gguf_init_empty());
  gguf_set_kv(target.get(), source.get());
  std::vector<std::vector<std::byte>> data;
  std::vector<ggml_context_ptr> contexts;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(source.get()); ++i) {
    const ggml_tensor* t = ggml_get_tensor(loaded, gguf_get_tensor_name(source.get(), i));
    const auto count = static_cast<std::size_t>(ggml_nelements(t));
    std::vector<float> plain(count);
    if (t->type == GGML_TYPE_F32)
      plain.assign(static_cast<const float*>(t->data), static_cast<const float*>(t->data) + count);
    else
      ggml_get_type_traits(t->type)->to_float(t->data, plain.data(), static_cast<std::int64_t>(count));
    contexts.emplace_back(ggml_init({ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor* out = ggml_new_tensor(contexts.back().get(), type_of(*t, type), ggml_n_dims(t), t->ne);
    ggml_set_name(out, t->name);
    out->data = data.emplace_back(ggml_nbytes(out)).data();
    ggml_quantize_chunk(out->type, plain.data(), out->data, 0, ggml_nrows(t), t->ne[0], nullptr);
    gguf_add_tensor(target.get(), out);
  }
  if (!gguf_write_to_file(target.get(), to.c_str(), false)) throw std::runtime_error("cannot write " + to);
}

struct Copies {
  std::map<std::string, std::string> made;
  ~Copies() {
    std::error_code ignored;
    for (const auto& [from, to] : made) std::filesystem::remove(to, ignored);
  }
};

}  // namespace

std::string in_type(const std::string& gguf, ggml_type type) {
  static Copies copies;
  const auto [it, is_new] = copies.made.try_emplace(gguf + " " + ggml_type_name(type));
  if (is_new) {
    const std::string name = std::string("palimpsest-") + ggml_type_name(type) + "-" + std::to_string(::getpid()) +
                             "-" + std::to_string(copies.made.size()) + ".gguf";
    it->second = (std::filesystem::temp_directory_path() / name).string();
    write(gguf, type, it->second);
  }
  return it->second;
}

}  // namespace palimpsest::testing
