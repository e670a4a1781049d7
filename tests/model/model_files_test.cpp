// Files as people have them: models split over several files, LoRA adapters, overridden metadata; and files that are no
// models.
#include <ggml-cpp.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/core/gguf_override.h"
#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/fingerprint.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/llama_peer.h"
#include "tests/support/random_tokens.h"
#include "tests/support/split_gguf.h"
#include "tests/support/teacher_forced.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class ModelFiles : public ::testing::Test {
 protected:
  ModelFiles() { fs::create_directories(folder_); }
  ~ModelFiles() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string synthetic(const std::string& shape) const {
    write_synthetic(parse_synthetic(shape), path("whole.gguf"));
    return path("whole.gguf");
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("palimpsest-files-" + std::to_string(::getpid()));
};

std::vector<float> logits_of(const std::shared_ptr<const Model>& model, const std::vector<TokenId>& tokens) {
  Decoder decoder(model, 1);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache cache(options);
  cache.insert(static_cast<int>(tokens.size()));
  const SequenceStep step{.cache = &cache, .tokens = tokens, .all_logits = true};
  const auto rows = decoder.step({&step, 1});
  return {rows.begin(), rows.end()};
}

TEST_F(ModelFiles, ASplitModelIsTheWholeOne) {
  for (const char* shape : {"tiny@type=f32", "tiny@type=q4_0", "tiny-gpt-oss@type=q8_0"})
    for (const int count : {2, 3}) {
      SCOPED_TRACE(std::string(shape) + ", parts: " + std::to_string(count));
      const std::string whole = synthetic(shape);
      const auto parts = split_gguf(whole, path("part"), count);
      const auto tokens = random_tokens(40, 3, 512);
      for (const bool repack : {true, false}) {
        const auto one = Model::load(whole, {.repack = repack}), many = Model::load(parts[0], {.repack = repack});
        EXPECT_EQ(logits_of(many, tokens), logits_of(one, tokens));
        EXPECT_EQ(fingerprint(*many), fingerprint(*one));
        EXPECT_EQ(many->hyper().weight_bytes, one->hyper().weight_bytes);
      }
      EXPECT_EQ(Vocabulary::load(parts[0])->size(), 512);
    }
}

TEST_F(ModelFiles, SaysWhichPartOfASplitModelIsWrong) {
  const auto parts = split_gguf(synthetic("tiny"), path("part"), 3);
  const auto error = [](const std::string& file) { return error_of([&] { Model::load(file); }); };
  EXPECT_NE(
      error(parts[1]).find("is part 2 of 3 of a split model; give the first, " + path("part-00001-of-00003.gguf")),
      std::string::npos);
  fs::rename(parts[2], path("hidden"));
  EXPECT_NE(error(parts[0]).find("part-00003-of-00003.gguf: cannot be opened"), std::string::npos);
  fs::copy(parts[1], parts[2]);
  EXPECT_NE(error(parts[0]).find("is not part 3 of 3"), std::string::npos);
  fs::remove(parts[2]);
  fs::copy(path("hidden"), parts[2]);
  EXPECT_NO_THROW(Model::load(parts[0]));
  fs::resize_file(parts[2], fs::file_size(parts[2]) - 64);
  EXPECT_NE(error(parts[0]).find("part-00003-of-00003.gguf: tensor"), std::string::npos);
  fs::copy(parts[0], path("other.gguf"));
  EXPECT_NE(error(path("other.gguf")).find("does not end with -00001-of-00003.gguf"), std::string::npos);
}

// Random matrices of rank 4 for the named tensors.
void write_adapter(const std::string& model, const std::vector<std::string>& names, const std::string& architecture,
                   const std::string& path, bool right_shape = true) {
  const GgufFile file = GgufFile::open(model);
  const gguf_context_ptr g(gguf_init_empty());
  gguf_set_val_str(g.get(), "general.type", "adapter");
  gguf_set_val_str(g.get(), "general.architecture", architecture.c_str());
  gguf_set_val_str(g.get(), "adapter.type", "lora");
  gguf_set_val_f32(g.get(), "adapter.lora.alpha", 8);
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<std::vector<float>> data;
  std::vector<NewTensor> tensors;
  data.reserve(2 * names.size());
  const auto add = [&](const std::string& name, std::int64_t a, std::int64_t b, std::int64_t c) {
    auto& values = data.emplace_back(static_cast<std::size_t>(a * b * c));
    for (float& v : values) v = normal(random);
    tensors.push_back({name, GGML_TYPE_F32, {a, b, c, 1}, values.data()});
  };
  constexpr std::int64_t kRank = 4;
  for (const std::string& name : names) {
    const GgufTensor* t = file.find(name);
    const std::int64_t in = t == nullptr ? 8 : t->ne[0] + (right_shape ? 0 : 32), out = t == nullptr ? 8 : t->ne[1],
                       many = t == nullptr ? 1 : t->ne[2];
    if (name == "token_embd.weight") {
      add(name + ".lora_a", kRank, out, 1);
      add(name + ".lora_b", kRank, in, 1);
    } else {
      add(name + ".lora_a", in, kRank, many);
      add(name + ".lora_b", kRank, out, many);
    }
  }
  write_gguf(g, tensors, path);
}

const std::vector<std::string> kAdapted = {"blk.0.attn_q.weight", "blk.0.attn_v.weight", "blk.1.attn_output.weight",
                                           "blk.1.ffn_down.weight", "blk.0.ffn_up.weight"};

// libllama multiplies by A and B apart.
TEST_F(ModelFiles, AnAdapterGivesTheLogitsOfLibllama) {
  const auto tokens = random_text(60, 7, 512);
  const std::string model = synthetic("tiny@type=f32");
  for (const float scale : {1.0F, -0.5F}) {
    write_adapter(model, kAdapted, "llama", path("adapter.gguf"));
    const auto theirs = llama_logits_with_adapter(model, tokens, path("adapter.gguf"), scale);
    const auto ours = logits_of(Model::load(model, {.lora = {{.path = path("adapter.gguf"), .scale = scale}}}), tokens);
    EXPECT_LE(max_relative_error(ours, theirs, 512), 1e-4);
    EXPECT_GT(max_relative_error(ours, logits_of(Model::load(model), tokens), 512), 1e-2);
  }
  SyntheticShape untied = parse_synthetic("tiny");
  untied.tied = false;
  write_synthetic(untied, model);
  write_adapter(model, {"token_embd.weight", "output.weight"}, "llama", path("ends.gguf"));
  EXPECT_LE(max_relative_error(logits_of(Model::load(model, {.lora = {{.path = path("ends.gguf")}}}), tokens),
                               llama_logits_with_adapter(model, tokens, path("ends.gguf"), 1), 512),
            1e-4);
  const std::string mixture = synthetic("tiny-mixtral@type=f32");
  write_adapter(mixture, {"blk.0.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"}, "llama", path("experts.gguf"));
  EXPECT_LE(max_relative_error(logits_of(Model::load(mixture, {.lora = {{.path = path("experts.gguf")}}}), tokens),
                               llama_logits_with_adapter(mixture, tokens, path("experts.gguf"), 1), 512),
            1e-4);
}

// The merged matrices of a quantised model are Q8_0.
TEST_F(ModelFiles, AnAdapterOfAQuantisedModel) {
  const auto tokens = random_text(60, 7, 512);
  const std::string model = synthetic("tiny@type=q4_0");
  write_adapter(model, kAdapted, "llama", path("adapter.gguf"));
  const auto merged = Model::load(model, {.lora = {{.path = path("adapter.gguf")}}});
  EXPECT_LE(max_relative_error(logits_of(merged, tokens),
                               llama_logits_with_adapter(model, tokens, path("adapter.gguf"), 1), 512),
            0.1);
  EXPECT_NE(fingerprint(*merged), fingerprint(*Model::load(model)));
  const auto other = Model::load(model, {.lora = {{.path = path("adapter.gguf"), .scale = 0.5F}}});
  EXPECT_NE(fingerprint(*merged), fingerprint(*other));
}

TEST_F(ModelFiles, RefusesAdaptersOfOtherModels) {
  const std::string model = synthetic("tiny@type=f32");
  const auto error = [&](const std::string& adapter) {
    return error_of([&] { Model::load(model, {.lora = {{.path = adapter}}}); });
  };
  EXPECT_NE(error(model).find("is not a LoRA adapter"), std::string::npos);
  write_adapter(model, kAdapted, "qwen2", path("qwen.gguf"));
  EXPECT_NE(error(path("qwen.gguf")).find("an adapter of a qwen2 model; the model is llama"), std::string::npos);
  write_adapter(model, {"blk.7.attn_q.weight"}, "llama", path("deep.gguf"));
  EXPECT_NE(error(path("deep.gguf")).find("adapts tensor blk.7.attn_q.weight, which"), std::string::npos);
  write_adapter(model, kAdapted, "llama", path("wide.gguf"), false);
  EXPECT_NE(error(path("wide.gguf")).find("do not fit"), std::string::npos);
  EXPECT_NE(error_of([&] { Model::load(path("wide.gguf")); }).find("is a LoRA adapter, not a model"),
            std::string::npos);
}

TEST_F(ModelFiles, OverriddenMetadataAreAsInAnotherFile) {
  const auto tokens = random_tokens(30, 3, 512);
  SyntheticShape shape = parse_synthetic("tiny");
  write_synthetic(shape, path("a.gguf"));
  shape.rope_base = 1000;
  write_synthetic(shape, path("b.gguf"));
  const auto load = [&](std::vector<GgufOverride> overrides) {
    return Model::load(path("a.gguf"), {.overrides = std::move(overrides)});
  };
  const auto changed = logits_of(load({parse_override("llama.rope.freq_base=float:1000")}), tokens);
  EXPECT_EQ(changed, logits_of(Model::load(path("b.gguf")), tokens));
  EXPECT_NE(changed, logits_of(load({}), tokens));
  EXPECT_NE(error_of([&] { load({parse_override("llama.block_count=int:3")}); }).find("blk.2.attn_norm"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load({parse_override("llama.block_count=str:3")}); }).find("llama.block_count"),
            std::string::npos);

  const GgufOverride no_bos[] = {parse_override("tokenizer.ggml.add_bos_token=bool:false")};
  EXPECT_EQ(Vocabulary::load(path("a.gguf"))->tokenize("ab", true, false).front(), 1);
  EXPECT_NE(Vocabulary::load(path("a.gguf"), no_bos)->tokenize("ab", true, false).front(), 1);

  for (const char* wrong : {"", "key", "key=3", "=int:3", "key=int:x", "key=bool:1", "key=number:1"})
    EXPECT_NE(error_of([&] { parse_override(wrong); }), "") << wrong;
}

TEST_F(ModelFiles, AVisionProjectorIsRefusedInOneSentence) {
  const gguf_context_ptr g(gguf_init_empty());
  gguf_set_val_str(g.get(), "general.architecture", "clip");
  const std::vector<float> zeros(64);
  write_gguf(g, {{"v.patch_embd.weight", GGML_TYPE_F32, {64, 1, 1, 1}, zeros.data()}}, path("mmproj.gguf"));
  EXPECT_NE(error_of([&] { Model::load(path("mmproj.gguf")); }).find("is a vision projector (mmproj)"),
            std::string::npos);
}

TEST_F(ModelFiles, ReportsProgressWhileMatricesAreRepacked) {
  std::vector<std::size_t> done;
  std::size_t all = 0;
  Model::synthetic("tiny@type=q4_0", {.progress = [&](std::size_t bytes, std::size_t total) {
                     done.push_back(bytes);
                     all = total;
                   }});
  ASSERT_GT(done.size(), 10u);
  EXPECT_TRUE(std::ranges::is_sorted(done));
  EXPECT_EQ(done.back(), all);
}

}  // namespace
}  // namespace palimpsest::testing
