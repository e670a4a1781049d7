// Prints llama.cpp's tokens and logits for a text, to be compared with PyTorch's by check.py.
// Build: c++ -O1 check_llama.cpp -o check_llama $(pkg-config --cflags --libs llama ggml)
// Usage: check_llama MODEL TEXT_FILE LOGITS_FILE [GREEDY]
// LOGITS_FILE gets raw floats [tokens, vocabulary]; standard output gets the token ids, then a line of greedy ones.
#include <ggml-backend.h>
#include <llama.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "usage: check_llama MODEL TEXT_FILE LOGITS_FILE [GREEDY]\n"), 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all();
  llama_model_params model_params = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(argv[1], model_params);
  if (!model) return std::fprintf(stderr, "%s: llama.cpp cannot load it\n", argv[1]), 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  std::ifstream in(argv[2], std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), {});

  std::vector<llama_token> ids(text.size() + 8);
  const int n = llama_tokenize(vocab, text.data(), int(text.size()), ids.data(), int(ids.size()), true, true);
  if (n <= 0) return std::fprintf(stderr, "cannot tokenize\n"), 1;
  ids.resize(size_t(n));
  for (llama_token t : ids) std::printf("%d ", t);
  std::printf("\n");

  const int more = argc > 4 ? std::atoi(argv[4]) : 0;
  llama_context_params context_params = llama_context_default_params();
  context_params.n_ctx = uint32_t(n + more + 8);
  context_params.n_batch = context_params.n_ubatch = uint32_t(n);
  context_params.type_k = context_params.type_v = GGML_TYPE_F32;
  context_params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  llama_context* context = llama_init_from_model(model, context_params);
  llama_batch batch = llama_batch_init(n, 0, 1);
  for (int i = 0; i < n; ++i) {
    batch.token[i] = ids[size_t(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = n;
  if (llama_decode(context, batch)) return std::fprintf(stderr, "decode failed\n"), 1;
  const int width = llama_vocab_n_tokens(vocab);
  std::ofstream out(argv[3], std::ios::binary);
  for (int i = 0; i < n; ++i)
    out.write(reinterpret_cast<const char*>(llama_get_logits_ith(context, i)), std::streamsize(sizeof(float)) * width);

  for (int i = 0; i < more; ++i) {
    const float* logits = llama_get_logits_ith(context, -1);
    llama_token best = 0;
    for (int t = 1; t < width; ++t)
      if (logits[t] > logits[best]) best = t;
    std::printf("%d ", best);
    if (llama_decode(context, llama_batch_get_one(&best, 1))) return 1;
  }
  std::printf("\n");
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
}
