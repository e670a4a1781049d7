#include "palimpsest/text/vocabulary_check.h"

#include <gguf.h>

#include <memory>
#include <string_view>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using Metadata = std::unique_ptr<gguf_context, decltype(&gguf_free)>;

bool is_array(const gguf_context* metadata, std::int64_t key, gguf_type type) {
  return gguf_get_kv_type(metadata, key) == GGUF_TYPE_ARRAY && gguf_get_arr_type(metadata, key) == type;
}

}  // namespace

void check_vocabulary(const std::string& path) {
  const Metadata metadata(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}), gguf_free);
  if (!metadata) fail("'{}' is not a readable GGUF file: give a whole model file", path);

  const auto find = [&](const char* key) { return gguf_find_key(metadata.get(), key); };
  const std::int64_t model = find("tokenizer.ggml.model");
  if (model < 0 || gguf_get_kv_type(metadata.get(), model) != GGUF_TYPE_STRING ||
      std::string_view(gguf_get_val_str(metadata.get(), model)) == "no_vocab")
    fail("'{}' has no vocabulary (tokenizer.ggml.model): convert the model together with its tokenizer", path);

  const std::int64_t tokens = find("tokenizer.ggml.tokens");
  if (tokens < 0 || !is_array(metadata.get(), tokens, GGUF_TYPE_STRING) || gguf_get_arr_n(metadata.get(), tokens) == 0)
    fail("'{}': tokenizer.ggml.tokens is not a list of strings: convert the model again", path);
  const std::size_t count = gguf_get_arr_n(metadata.get(), tokens);

  const struct {
    const char* key;
    gguf_type type;
    bool per_token;
  } lists[] = {{"tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, true},
               {"tokenizer.ggml.token_type", GGUF_TYPE_INT32, true},
               {"tokenizer.ggml.merges", GGUF_TYPE_STRING, false}};
  for (const auto& list : lists) {
    const std::int64_t key = find(list.key);
    if (key < 0) continue;
    if (!is_array(metadata.get(), key, list.type))
      fail("'{}': {} has elements of the wrong type: convert the model again", path, list.key);
    if (list.per_token && gguf_get_arr_n(metadata.get(), key) != count)
      fail("'{}': {} has {} entries for {} tokens: convert the model again", path, list.key,
           gguf_get_arr_n(metadata.get(), key), count);
  }

  for (std::int64_t key = 0; key < gguf_get_n_kv(metadata.get()); ++key) {
    const std::string_view name = gguf_get_key(metadata.get(), key);
    if (!name.starts_with("tokenizer.ggml.") || !name.ends_with("_token_id")) continue;
    if (gguf_get_kv_type(metadata.get(), key) != GGUF_TYPE_UINT32)
      fail("'{}': {} is not an unsigned number: convert the model again", path, name);
  }
}

}  // namespace palimpsest
