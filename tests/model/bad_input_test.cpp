// Bad files give an Error of one line that says what is wrong and what to do; never a crash, never a model.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/model.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

using Bytes = std::vector<std::byte>;

// A small complete model; each test damages a copy of it.
const Bytes& whole() {
  static const Bytes bytes = [] {
    SyntheticShape shape = parse_synthetic("tiny@layers=1@vocab=300");
    shape.width = 64;
    shape.feed_forward = 96;
    shape.query_heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 16;
    const GgufFile file = make_synthetic(shape);
    return Bytes(file.bytes().begin(), file.bytes().end());
  }();
  return bytes;
}

// The Error's message of loading; "" if it loads.
std::string error_of_file(const Bytes& bytes) {
  // Exactly as large as the file, aligned like a mapping, so that a sanitizer detects a read beyond the end.
  const std::size_t size = bytes.size();
  std::shared_ptr<void> keep(::operator new (std::max<std::size_t>(size, 1), std::align_val_t{64}),
                             [](void* p) { ::operator delete (p, std::align_val_t{64}); });
  if (size > 0) std::memcpy(keep.get(), bytes.data(), size);
  try {
    const std::span<const std::byte> span(static_cast<const std::byte*>(keep.get()), size);
    Model::from(GgufFile::parse(span, "file.gguf", keep));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

bool one_line(const std::string& message) {
  for (const unsigned char c : message)
    if (c < 32) return false;
  return !message.empty() && message.size() < 600;
}

std::size_t place_of(const Bytes& bytes, const std::string& text) {
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t at = all.find(text);
  EXPECT_NE(at, std::string_view::npos) << text;
  return at;
}

// Overwrites the bytes `skip` after the end of `text`.
template <typename T>
Bytes with(const std::string& text, std::size_t skip, T value) {
  Bytes bytes = whole();
  std::memcpy(bytes.data() + place_of(bytes, text) + text.size() + skip, &value, sizeof value);
  return bytes;
}

// A u32 of the metadata: key, type (4 bytes), value.
Bytes with_key(const std::string& key, std::uint32_t value) {
  return with(key, 4, value);
}

Bytes renamed(const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  Bytes bytes = whole();
  std::memcpy(bytes.data() + place_of(bytes, from), to.data(), to.size());
  return bytes;
}

TEST(BadInputTest, TheWholeModelLoads) {
  EXPECT_EQ(error_of_file(whole()), "");
}

TEST(BadInputTest, TruncatedAnywhere) {
  const std::size_t size = whole().size();
  const std::size_t header = place_of(whole(), "token_embd.weight") + 4096;
  for (std::size_t cut = 0; cut < size; cut += cut < header ? 37 : 4099) {
    const std::string message =
        error_of_file(Bytes(whole().begin(), whole().begin() + static_cast<std::ptrdiff_t>(cut)));
    ASSERT_TRUE(one_line(message)) << "cut at " << cut << ": " << message;
  }
  EXPECT_TRUE(one_line(error_of_file(Bytes(whole().begin(), whole().end() - 64))));
}

TEST(BadInputTest, FlippedBitsOfTheHeaderNeverCrash) {
  const std::size_t header = place_of(whole(), "blk.0.ffn_down.weight") + 64;
  std::mt19937_64 random(3);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    Bytes bytes = whole();
    // Most of the header is the vocabulary, which the loader does not read: flip bits near both ends.
    const std::size_t near_end = header - std::min<std::size_t>(header, 1200);
    const std::size_t at = random() % 2 == 0 ? random() % 900 : near_end + random() % (header - near_end);
    bytes[at] ^= std::byte{1} << (random() % 8);
    if (random() % 4 == 0) bytes[random() % header] = static_cast<std::byte>(random());
    const std::string message = error_of_file(bytes);
    if (message.empty()) continue;  // a name, an unused key, another float
    ++refused;
    ASSERT_TRUE(one_line(message)) << message;
  }
  EXPECT_GT(refused, 300);
}

TEST(BadInputTest, SaysWhatIsWrong) {
  struct Case {
    Bytes bytes;
    std::vector<std::string> says;
  };
  const std::string gate = "blk.0.ffn_gate.weight";
  const std::vector<Case> cases = {
      {{}, {"not a GGUF file"}},
      {Bytes(100, std::byte{'x'}), {"not a GGUF file", "convert"}},
      {with("GGUF", 0, std::uint32_t{1}), {"version 1", "convert"}},
      {with("GGUF", 0, std::uint32_t{0x03000000}), {"big-endian"}},
      {with("GGUF", 4, std::uint64_t{1} << 60), {"claims", "truncated"}},
      {with("GGUF", 12, std::uint64_t{1} << 60), {"claims", "truncated"}},
      {with("tokenizer.ggml.scores", 8, std::uint64_t{1} << 62), {"tokenizer.ggml.scores", "more than the file"}},
      {with("tokenizer.ggml.scores", 4, std::uint32_t{9}), {"array of arrays"}},
      {with("llama.block_count", 0, std::uint32_t{77}), {"llama.block_count", "unknown type 77"}},
      {with("llama.block_count", 0, std::uint32_t{6}), {"llama.block_count", "type f32"}},
      {renamed("general.architecture", "general.architecturf"), {"general.architecture is missing"}},
      {with("general.architecture", 12, std::array{'l', 'e', 'm', 'm', 'a'}),
       {"\"lemma\" is not supported", "the nearest one that is: gemma"}},
      {renamed("llama.block_count", "llama.block_coumt"), {"llama.block_count is missing"}},
      {renamed(gate, "blk.0.ffn_gaze.weight"), {gate, "[64, 96] is missing"}},
      {renamed("output_norm.weight", "output_norn.weight"), {"output_norm.weight", "missing"}},
      {with(gate, 4, std::uint64_t{32}), {gate, "[32, 96]", "[64, 96]"}},
      {with(gate, 0, std::uint32_t{9}), {gate, "9 dimensions"}},
      {with(gate, 4, std::uint64_t{1} << 40), {gate, "beyond the end"}},
      {with(gate, 4, ~std::uint64_t{0}), {gate, "impossible shape"}},
      {with(gate, 12, std::uint64_t{0}), {gate, "impossible shape"}},
      {with(gate, 20, std::uint32_t{4}), {gate, "unknown type 4"}},
      {with(gate, 20, std::uint32_t{1000}), {gate, "unknown type 1000"}},
      {with(gate, 20, std::uint32_t{GGML_TYPE_I32}), {gate, "i32", "no type of weights"}},
      {with(gate, 20, std::uint32_t{GGML_TYPE_Q8_1}), {gate, "q8_1", "no type of weights"}},
      {with(gate, 20, std::uint32_t{GGML_TYPE_Q4_K}), {gate, "blocks of 256"}},
      {with(gate, 24, std::uint64_t{7}), {gate, "offset 7"}},
      {with(gate, 24, std::uint64_t{1} << 50), {gate, "beyond the end"}},
      {with(gate, 24, ~std::uint64_t{31}), {gate, "beyond the end"}},
      {renamed("blk.0.ffn_up.weight", "blk.0.ffn_vp.weight"), {"blk.0.ffn_up.weight", "missing"}},
      {with("blk.0.attn_norm.weight", 12, std::uint32_t{GGML_TYPE_Q8_0}), {"blk.0.attn_norm.weight", "q8_0", "f32"}},
      {with_key("llama.block_count", 2), {"blk.1.attn_norm.weight", "missing"}},
      {with_key("llama.block_count", 0), {"llama.block_count is 0"}},
      {with_key("llama.block_count", 4000000000U), {"llama.block_count is 4000000000"}},
      {with_key("llama.embedding_length", 128), {"token_embd.weight", "[64, 300]", "[128, 300]"}},
      {with_key("llama.attention.head_count", 3), {"3 query heads", "2 KV heads"}},
      {with_key("llama.attention.head_count", 8), {"blk.0.attn_q.weight", "[64, 64]", "[64, 128]"}},
      {with_key("llama.attention.head_count_kv", 4), {"blk.0.attn_k.weight", "[64, 32]", "[64, 64]"}},
      {with_key("llama.attention.head_count_kv", 0), {"head_count_kv is 0"}},
      {with_key("llama.attention.key_length", 17), {"blk.0.attn_q.weight", "[64, 64]", "[64, 68]"}},
      {with_key("llama.attention.key_length", 0), {"key_length is 0"}},
      {with_key("llama.rope.dimension_count", 15), {"rope.dimension_count is 15", "even"}},
      {with_key("llama.rope.dimension_count", 32), {"rope.dimension_count is 32", "16"}},
      {with_key("llama.rope.freq_base", 0x7fc00000), {"rope.freq_base is not a finite number"}},
      {with_key("llama.rope.freq_base", 0), {"rope.freq_base is 0"}},
      {with_key("llama.vocab_size", 301), {"300 rows", "vocab_size is 301"}},
  };
  for (const Case& c : cases) {
    const std::string message = error_of_file(c.bytes);
    EXPECT_TRUE(one_line(message)) << message;
    for (const std::string& words : c.says)
      EXPECT_NE(message.find(words), std::string::npos) << "says: " << message << "\nbut not: " << words;
  }
}

// Each count is valid, but the total number of heads overflows int.
TEST(BadInputTest, ProductsOfCountsAreChecked) {
  Bytes bytes = whole();
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"llama.block_count", 4096},
                                                          {"llama.attention.head_count", 1U << 20},
                                                          {"llama.attention.head_count_kv", 1U << 20},
                                                          {"llama.attention.key_length", 2},
                                                          {"llama.attention.value_length", 2},
                                                          {"llama.rope.dimension_count", 2}})
    std::memcpy(bytes.data() + place_of(bytes, key) + key.size() + 4, &value, sizeof value);
  const auto keep = std::make_shared<Bytes>(bytes);
  const GgufFile file = GgufFile::parse(*keep, "file.gguf", keep);
  const std::string message = error_of([&] { read_hyperparameters(file, find_family("llama")); });
  EXPECT_NE(message.find("file.gguf: 4096 layers have more than"), std::string::npos) << message;
}

// Files of all families whose head counts or dimensions do not match their tensors.
TEST(BadInputTest, EveryFamilysLiesAboutItsShape) {
  for (const Family* family : families()) {
    SyntheticShape shape = parse_synthetic("tiny-" + std::string(family->architecture));
    shape.vocabulary = 300;
    shape.layers = shape.expert_interval;
    shape.leading_dense = 0;
    shape.query_heads_of = shape.kv_heads_of = shape.feed_forward_of = {};
    if (shape.attention_interval > 0) shape.attention_interval = 1;
    if (family->single_parts) shape.layers = 2, shape.feed_forward_of = {0, shape.feed_forward};
    const GgufFile file = make_synthetic(shape);
    const Bytes right(file.bytes().begin(), file.bytes().end());
    ASSERT_EQ(error_of_file(right), "") << family->architecture;
    const std::string prefix = std::string(family->architecture) + ".";
    for (const auto& [key, value] : std::vector<std::pair<std::string, int>>{
             {"attention.head_count", shape.query_heads / 2},
             {"attention.head_count", 2 * shape.query_heads},
             {"attention.head_count_kv", shape.kv_heads / 2},
             {"attention.head_count_kv", 3 * shape.query_heads},
             {"attention.key_length", shape.head_dim / 2},
             {"attention.value_length", 2 * shape.head_dim},
             {"embedding_length", 2 * shape.width},
             {shape.experts > 0 ? "expert_feed_forward_length" : "feed_forward_length", shape.feed_forward + 1},
             {"block_count", shape.layers + 1}}) {
      Bytes bytes = right;
      const std::string name = prefix + key;
      std::memcpy(bytes.data() + place_of(right, name) + name.size() + 4, &value, sizeof value);
      const std::string message = error_of_file(bytes);
      EXPECT_TRUE(one_line(message)) << prefix << key << " = " << value << ": " << message;
    }
  }
}

// What files of a family may ask for and the loader refuses.
TEST(BadInputTest, UnsupportedFormsOfFamilies) {
  const auto message_of = [](const SyntheticShape& shape) {
    return error_of([&] { Model::from(make_synthetic(shape)); });
  };
  SyntheticShape yarn = parse_synthetic("tiny-hunyuan-dense");
  yarn.rope_scaling = "yarn";
  yarn.rope_factor = 4;
  EXPECT_NE(message_of(yarn).find("\"yarn\" is not supported for hunyuan-dense"), std::string::npos);
  SyntheticShape two = parse_synthetic("tiny-llama4");
  two.experts_used = 2;
  EXPECT_NE(message_of(two).find("2 experts per token are not supported for llama4"), std::string::npos);
  SyntheticShape whole = parse_synthetic("tiny-llama4");
  whole.keys.push_back({"attention.sliding_window", ExtraKey::Type::kInteger, 0});
  EXPECT_NE(message_of(whole).find("without chunked attention"), std::string::npos);
  SyntheticShape groups = parse_synthetic("tiny-grovemoe");
  groups.adjugate_group = 4;
  EXPECT_NE(message_of(groups).find("3 experts per token and 2 groups are not supported"), std::string::npos);
}

// Architectures that need another mechanism, and unknown ones.
TEST(BadInputTest, UnsupportedArchitecturesSayWhy) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"deepseek32", "an index of its own"},
      {"glm-dsa", "an index of its own"},
      {"mamba", "nothing to evict"},
      {"rwkv7", "nothing to evict"},
      {"kimi-linear", "recurrent layers"},
      {"llada", "diffusion"},
      {"bert", "an encoder, which writes no text; `palimpsest serve`"},
      {"eagle3", "a draft"},
      {"laguna", "a softplus"},
      {"qwen4exp", "no description"},
      {"wavtokenizer-dec", "audio"},
      {"llma", "nearest one that is: llama"},
      {"qwen2moo", "nearest one that is: qwen2moe"},
      {"qwen9-experimental", "nearest one that is: qwen"},
      {"zzz", "info --families"}};
  for (const auto& [architecture, says] : cases) {
    const std::string message = error_of([&, name = architecture] { find_family(name); });
    EXPECT_TRUE(one_line(message)) << message;
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }
}

// Numbers of xIELU: one, or one per layer.
TEST(BadInputTest, ActivationsOfApertus) {
  SyntheticShape shape = parse_synthetic("tiny-apertus");
  std::erase_if(shape.keys, [](const ExtraKey& key) { return key.name == "xielu.beta"; });
  EXPECT_NE(error_of([&] { Model::from(make_synthetic(shape)); }).find("xielu.beta is missing"), std::string::npos);
}

TEST(BadInputTest, TensorsThatOverlapAreRefused) {
  const std::string up = "blk.0.ffn_up.weight", gate = "blk.0.ffn_gate.weight";
  std::uint64_t offset = 0;
  std::memcpy(&offset, whole().data() + place_of(whole(), up) + up.size() + 24, sizeof offset);
  for (const std::uint64_t shift : {0, 32, 64}) {
    const std::string message = error_of_file(with(gate, 24, offset + shift));
    EXPECT_TRUE(one_line(message)) << message;
    for (const std::string& words : {up, gate, std::string("overlap")})
      EXPECT_NE(message.find(words), std::string::npos) << message;
  }
}

TEST(BadInputTest, AForeignTensorIsRefused) {
  // The graph would silently ignore it: renames the optional RoPE table of a model.
  SyntheticShape shape = parse_synthetic("tiny@layers=1");
  shape.llama3_factors = true;
  shape.original_context = 128;
  const GgufFile file = make_synthetic(shape);
  Bytes bytes(file.bytes().begin(), file.bytes().end());
  EXPECT_EQ(error_of_file(bytes), "");
  std::memcpy(bytes.data() + place_of(bytes, "rope_freqs.weight"), "blk.0.extra.scale", 17);
  EXPECT_NE(error_of_file(bytes).find("\"blk.0.extra.scale\" is not part of a llama model"), std::string::npos);
}

// Bytes in memory need not be aligned like a mapping.
TEST(BadInputTest, AModelAtAnyAddressLoads) {
  Bytes bytes(whole().size() + 8);
  std::memcpy(bytes.data() + 8, whole().data(), whole().size());
  const std::span<const std::byte> crooked(bytes.data() + 8, whole().size());
  const auto model = Model::from(GgufFile::parse(crooked, "crooked.gguf"));
  Decoder decoder(model, 1);
  Cache cache(decoder.cache_options());
  cache.insert(1);
  const TokenId token = 5;
  const SequenceStep step{.cache = &cache, .tokens = {&token, 1}};
  EXPECT_EQ(decoder.step({&step, 1}).size(), 300U);
}

TEST(BadInputTest, PathsThatAreNoFile) {
  const auto message_of = [](const std::string& path) -> std::string {
    try {
      Model::load(path);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto dir = std::filesystem::temp_directory_path();
  EXPECT_NE(message_of((dir / "no-such-model.gguf").string()).find("cannot be opened"), std::string::npos);
  EXPECT_NE(message_of(dir.string()).find("not a regular file"), std::string::npos);
  const std::string empty = (dir / (std::to_string(::getpid()) + "-empty.gguf")).string();
  std::ofstream(empty).close();
  EXPECT_NE(message_of(empty).find("is empty"), std::string::npos);
  std::filesystem::remove(empty);
}

TEST(BadInputTest, UnknownDevicesShapesAndThreads) {
  const auto message_of = [](const std::function<void()>& act) -> std::string {
    try {
      act();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const auto says = [&](const std::function<void()>& act, const std::string& words) {
    const std::string message = message_of(act);
    EXPECT_TRUE(one_line(message)) << message;
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  says([] { Model::synthetic("tiny", {.device = "abacus"}); }, "there are: cpu");
  says([] { parse_synthetic("llama-9"); }, "llama-3.2-1b");
  says([] { parse_synthetic("tiny@layers=0"); }, "layers=\"0\"");
  says([] { parse_synthetic("tiny@layers=2x"); }, "layers=\"2x\"");
  says([] { parse_synthetic("tiny@type=q9"); }, "q4_0");
  says([] { parse_synthetic("tiny@colour=red"); }, "@layers=N");
  says([] { Decoder(Model::synthetic("tiny"), 0); }, "0 threads");
}

TEST(BadInputTest, TokensOutsideTheVocabulary) {
  Decoder decoder(Model::synthetic("tiny@vocab=300"), 1);
  for (const TokenId bad : {-1, 300}) {
    Cache cache(decoder.cache_options());
    cache.insert(1);
    const SequenceStep step{.cache = &cache, .tokens = {&bad, 1}};
    EXPECT_THROW(decoder.step({&step, 1}), Error);
  }
}

}  // namespace
}  // namespace palimpsest::testing
