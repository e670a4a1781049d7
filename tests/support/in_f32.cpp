#include "tests/support/in_f32.h"

#include <ggml-cpp.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <stdexcept>
#include <vector>

namespace palimpsest::testing {

namespace {

void write_in_f32(const std::string& from, const std::string& to) {
  ggml_context* loaded = nullptr;
  const gguf_context_ptr source(gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &loaded}));
  const ggml_context_ptr tensors(loaded);
  if (!source) throw std::runtime_error("no GGUF file: " + from);
  const gguf_context_ptr target(gguf_init_empty());
  gguf_set_kv(target.get(), source.get());
  std::vector<std::vector<float>> rows;
  std::vector<ggml_context_ptr> contexts;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(source.get()); ++i) {
    const ggml_tensor* t = ggml_get_tensor(loaded, gguf_get_tensor_name(source.get(), i));
    const auto count = static_cast<std::size_t>(ggml_nelements(t));
    rows.emplace_back(count);
    if (t->type == GGML_TYPE_F32)
      rows.back().assign(static_cast<const float*>(t->data), static_cast<const float*>(t->data) + count);
    else
      ggml_get_type_traits(t->type)->to_float(t->data, rows.back().data(), static_cast<std::int64_t>(count));
    contexts.emplace_back(ggml_init({ggml_tensor_overhead(), nullptr, true}));
    ggml_tensor* out = ggml_new_tensor(contexts.back().get(), GGML_TYPE_F32, ggml_n_dims(t), t->ne);
    ggml_set_name(out, t->name);
    out->data = rows.back().data();
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

std::string in_f32(const std::string& gguf) {
  static Copies copies;
  const auto [it, is_new] = copies.made.try_emplace(gguf);
  if (is_new) {
    const std::string name =
        "palimpsest-f32-" + std::to_string(::getpid()) + "-" + std::to_string(copies.made.size()) + ".gguf";
    it->second = (std::filesystem::temp_directory_path() / name).string();
    write_in_f32(gguf, it->second);
  }
  return it->second;
}

}  // namespace palimpsest::testing
