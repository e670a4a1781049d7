#include "palimpsest/model/encoder_file.h"

#include <algorithm>
#include <array>

#include "palimpsest/core/error.h"
#include "palimpsest/model/arch_metadata.h"

namespace palimpsest {
namespace {

constexpr std::array<std::string_view, 4> kPoolingNames = {"mean", "cls", "last", "rank"};  // libllama's numbers from 1
constexpr std::array<std::string_view, 11> kEncoders = {
    "bert",         "modern-bert", "nomic-bert",      "nomic-bert-moe", "neo-bert",   "jina-bert-v2",
    "jina-bert-v3", "eurobert",    "gemma-embedding", "t5encoder",      "llama-embed"};

int pooling_type(const GgufFile& file, std::string_view architecture) {
  return ArchMetadata(file, architecture).optional("pooling_type", 0, 4, 0);
}

}  // namespace

std::string_view name_of(EncoderPooling pooling) {
  return kPoolingNames[static_cast<std::size_t>(pooling)];
}

EncoderPooling parse_encoder_pooling(std::string_view text) {
  const auto at = std::ranges::find(kPoolingNames, text);
  if (at == kPoolingNames.end()) fail("--pooling {}: an encoder takes mean, cls, last or rank", printable(text));
  return static_cast<EncoderPooling>(at - kPoolingNames.begin());
}

std::span<const std::string_view> encoder_architectures() {
  return kEncoders;
}

bool is_encoder(const GgufFile& file) {
  const std::string architecture = file.text("general.architecture").value_or("");
  return std::ranges::find(kEncoders, architecture) != kEncoders.end() ||
         pooling_type(file, architecture) == static_cast<int>(EncoderPooling::kRank) + 1;
}

EncoderFile read_encoder(const GgufFile& file) {
  constexpr int kMaxLayers = 512;  // libllama's
  EncoderFile out;
  out.architecture = file.text("general.architecture").value_or("");
  out.name = printable(file.text("general.name").value_or(""));
  const ArchMetadata keys(file, out.architecture);
  out.layers = keys.required("block_count", kMaxLayers);
  out.width = keys.required("embedding_length");
  out.context = keys.required("context_length");
  const std::vector<int> heads = keys.of_layers("attention.head_count", out.layers, true);
  const std::vector<int> kv_heads = keys.of_layers("attention.head_count_kv", out.layers, true, heads);
  for (std::size_t i = 0; i < heads.size(); ++i)
    if (heads[i] < 1 || kv_heads[i] < 1 || heads[i] % kv_heads[i] != 0 ||
        (out.width % heads[i] != 0 && !keys.has("attention.key_length")))
      fail("{}: layer {} has {} heads and {} KV heads for width {}: convert the model again", file.path(), i, heads[i],
           kv_heads[i], out.width);
  out.heads = heads.front();
  if (const int type = pooling_type(file, out.architecture); type > 0)
    out.pooling = static_cast<EncoderPooling>(type - 1);
  out.has_head = file.find("cls.weight") != nullptr || file.find("cls.output.weight") != nullptr;
  for (const GgufTensor& tensor : file.tensors()) {
    std::size_t count = 1;
    for (const std::int64_t n : tensor.ne) count *= static_cast<std::size_t>(n);
    out.parameters += count;
    out.weight_bytes += tensor.bytes;
  }
  const GgufTensor* const embedding = file.find("token_embd.weight");
  if (embedding == nullptr) fail("{}: token_embd.weight is missing: convert the model again", file.path());
  if (embedding->ne[0] != out.width ||
      embedding->ne[1] != static_cast<std::int64_t>(file.array_size("tokenizer.ggml.tokens")))
    fail("{}: token_embd.weight is {} x {} for width {} and {} tokens: convert the model again", file.path(),
         embedding->ne[0], embedding->ne[1], out.width, file.array_size("tokenizer.ggml.tokens"));
  return out;
}

}  // namespace palimpsest
