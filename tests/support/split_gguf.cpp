#include "tests/support/split_gguf.h"

#include <fmt/format.h>

#include <stdexcept>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest::testing {

void write_gguf(const gguf_context_ptr& g, const std::vector<NewTensor>& tensors, const std::string& path) {
  const ggml_context_ptr context(ggml_init({(tensors.size() + 1) * ggml_tensor_overhead(), nullptr, true}));
  for (const NewTensor& t : tensors) {
    int dims = GGML_MAX_DIMS;
    while (dims > 1 && t.ne[static_cast<std::size_t>(dims) - 1] == 1) --dims;
    ggml_tensor* info = ggml_new_tensor(context.get(), t.type, dims, t.ne.data());
    ggml_set_name(info, t.name.c_str());
    info->data = const_cast<void*>(t.data);
    gguf_add_tensor(g.get(), info);
  }
  if (!gguf_write_to_file(g.get(), path.c_str(), false)) throw std::runtime_error(path + " cannot be written");
}

std::vector<std::string> split_gguf(const std::string& whole, const std::string& prefix, int count) {
  const GgufFile file = GgufFile::open(whole);
  const gguf_context_ptr all(gguf_init_from_file(whole.c_str(), {true, nullptr}));
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    const gguf_context_ptr part(gguf_init_empty());
    if (i == 0) gguf_set_kv(part.get(), all.get());
    gguf_set_val_u16(part.get(), "split.no", static_cast<std::uint16_t>(i));
    gguf_set_val_u16(part.get(), "split.count", static_cast<std::uint16_t>(count));
    gguf_set_val_i32(part.get(), "split.tensors.count", static_cast<std::int32_t>(file.tensors().size()));
    std::vector<NewTensor> tensors;
    const std::size_t n = file.tensors().size();
    for (std::size_t t = n * i / count; t < n * (i + 1) / count; ++t)
      tensors.push_back({file.tensors()[t].name, file.tensors()[t].type, file.tensors()[t].ne, file.tensors()[t].data});
    names.push_back(prefix + fmt::format("-{:05}-of-{:05}.gguf", i + 1, count));
    write_gguf(part, tensors, names.back());
  }
  return names;
}

}  // namespace palimpsest::testing
