// Logits against libllama's on the same file, teacher-forced over 200 tokens of text or 80 random tokens (long form:
// 400, 200); the last test prints the table. Every family and every type of weights is tested in every run; the short
// form interleaves the types, the long one tests all of them.
//
// Random weights amplify the rounding of quantised activations (a flipped bit of one 8-bit activation moves every
// later layer), so relative bounds hold for f32 and f16; quantised weights have a bound of the KL divergence.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "palimpsest/graph/decoder.h"
#include "palimpsest/model/families/families.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/draws.h"
#include "tests/support/llama_peer.h"
#include "tests/support/random_tokens.h"
#include "tests/support/shared_dir.h"
#include "tests/support/test_length.h"

namespace palimpsest::testing {
namespace {

const int kTextTokens = test_length(200, 400, 100), kRandomTokens = test_length(80, 200, 80);

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "-" + name)) {}
  ~TemporaryFile() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::vector<float> our_rows(const std::shared_ptr<const Model>& model, const std::vector<TokenId>& tokens, int chunk,
                            StepResult result = StepResult::kLogits) {
  Decoder decoder(model, 1);
  CacheOptions options = decoder.cache_options();
  options.geometry = options.geometry.with_types(CacheType::kF32, CacheType::kF32);
  Cache cache(options);
  std::vector<float> out;
  for (std::size_t first = 0; first < tokens.size(); first += static_cast<std::size_t>(chunk)) {
    const auto part = std::span(tokens).subspan(first, std::min<std::size_t>(chunk, tokens.size() - first));
    cache.insert(static_cast<int>(part.size()));
    const SequenceStep step{.cache = &cache, .tokens = part, .all_logits = true, .result = result};
    const auto rows = decoder.step({&step, 1});
    out.insert(out.end(), rows.begin(), rows.end());
  }
  return out;
}

struct Difference {
  double relative = 0;    // maximum over tokens of max |a - b| / max |b|
  double of_most = 0;     // ... over all tokens but the worst 20%
  double divergence = 0;  // mean KL(libllama || ours), nats
  double same_top = 0;    // fraction of tokens
};

Difference compare(std::vector<float> ours, const std::vector<float>& theirs, int vocabulary) {
  EXPECT_EQ(ours.size(), theirs.size());
  // Chameleon: libllama sets the logits of image tokens to -FLT_MAX, in the first row of each chunk only.
  for (std::size_t i = 0; i < std::min(ours.size(), theirs.size()); ++i)
    if (theirs[i] < -1e30F) ours[i] = theirs[i];
  Difference d;
  const auto log_softmax = [vocabulary](const float* row) {
    const double top = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (int i = 0; i < vocabulary; ++i) sum += std::exp(row[i] - top);
    return top + std::log(sum);
  };
  const int rows = static_cast<int>(theirs.size()) / vocabulary;
  std::vector<double> errors;
  int same = 0;
  for (int r = 0; r < rows; ++r) {
    const float *a = ours.data() + r * vocabulary, *b = theirs.data() + r * vocabulary;
    double error = 0, size = 0, kl = 0;
    const double za = log_softmax(a), zb = log_softmax(b);
    for (int i = 0; i < vocabulary; ++i) {
      if (!std::isfinite(a[i])) error = INFINITY;
      error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
      size = std::max(size, std::abs(static_cast<double>(b[i])));
      kl += std::exp(b[i] - zb) * ((b[i] - zb) - (a[i] - za));
    }
    errors.push_back(error / size);
    d.divergence += kl / rows;
    same += std::max_element(a, a + vocabulary) - a == std::max_element(b, b + vocabulary) - b;
  }
  std::ranges::sort(errors);
  d.relative = errors.back();
  d.of_most = errors[errors.size() * 80 / 100];
  d.same_top = static_cast<double>(same) / rows;
  return d;
}

struct Measured {
  std::string model, weights;
  int chunk;
  Difference d;
};
std::vector<Measured>& table() {
  static std::vector<Measured> rows;
  return rows;
}

// One file, one token at a time and in chunks of 64.
void check(const std::string& name, const std::string& weights, const std::string& path,
           const std::vector<TokenId>& tokens, bool trained, double max_divergence = 1e-3) {
  const auto theirs = llama_logits(path, tokens, 64);
  const auto model = Model::load(path);
  // A router's near tie that falls the other way, which depends on the CPU's rounding, gives a token another expert,
  // and later tokens attend to it: not counted in f16.
  const bool routes = weights == "f16" && model->hyper().experts_used < model->hyper().experts;
  if (routes) max_divergence *= 3;
  double min_same_top = 0.99, bound = weights == "f32" ? 1e-4 : weights == "f16" ? 1e-2 : INFINITY;
  // The difference between libllama's two attention paths is the noise level. ggml's GELU is an f16 table, which turns
  // differences of 1e-7 into steps of 5e-4.
  const bool table_steps = model->family().activation == Activation::kGelu && !weights.starts_with("q");
  if (trained || table_steps) {
    const auto flash = llama_logits(path, tokens, 64, true);
    const Difference noise = compare(flash, theirs, model->hyper().vocabulary);
    table().push_back({name + ", libllama's flash attention", weights, 64, noise});
    min_same_top = std::min(min_same_top, noise.same_top);
    // Our products round activations otherwise than ggml's: near ties of a small model fall the other way.
    if (weights.starts_with("q")) min_same_top = std::min(min_same_top, 0.97);
    constexpr double kStep = 5e-4;  // libllama has one path for Grok's attention: no noise level
    if (table_steps) bound = std::max(bound, noise.relative == 0 ? kStep : 2 * noise.relative);
  }
  for (const int chunk : {1, 64}) {
    const Difference d = compare(our_rows(model, tokens, chunk), theirs, model->hyper().vocabulary);
    table().push_back({name, weights, chunk, d});
    SCOPED_TRACE(name + " " + weights + " chunk " + std::to_string(chunk));
    EXPECT_LE(routes ? d.of_most : d.relative, bound);
    EXPECT_LE(d.divergence, max_divergence);
    if (trained) {
      EXPECT_GE(d.same_top, min_same_top);
    }
  }
}

// Hidden states after the last norm, of which embeddings are made.
void check_hidden(const std::string& name, const std::string& path, const std::vector<TokenId>& tokens) {
  const auto model = Model::load(path);
  const auto ours = our_rows(model, tokens, 64, StepResult::kHidden), theirs = llama_hidden(path, tokens, 64);
  ASSERT_EQ(ours.size(), theirs.size()) << name;
  double error = 0, size = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    error += (ours[i] - theirs[i]) * (ours[i] - theirs[i]);
    size += theirs[i] * theirs[i];
  }
  EXPECT_LE(std::sqrt(error / size), 1e-2) << name;
}

void check_synthetic(SyntheticShape shape, const std::string& name, const std::string& weights,
                     double max_divergence = 1e-3) {
  const TemporaryFile file(name + "-" + weights + ".gguf");
  write_synthetic(shape, file.path());
  try {
    check(name, weights, file.path(), random_text(kRandomTokens, 7, shape.vocabulary), false, max_divergence);
  } catch (const std::exception& e) {
    ADD_FAILURE() << name << ", " << weights << ": " << e.what();
  }
}

TEST(LogitsTest, TrainedModelInEveryPrecision) {
  const auto shared = shared_dir();
  if (!shared) GTEST_SKIP() << "needs shared/models and shared/text (set PALIMPSEST_SHARED)";
  const std::string path = (*shared / "models/stories260K/stories260K.gguf").string();
  std::ifstream stories(*shared / "text/tinystories_1000.json");
  const auto texts = nlohmann::json::parse(stories);
  const auto vocabulary = Vocabulary::load(path);
  std::vector<TokenId> tokens = vocabulary->tokenize(texts.at(0).get<std::string>(), true, false);
  for (const TokenId t : vocabulary->tokenize(texts.at(1).get<std::string>(), true, false)) tokens.push_back(t);
  ASSERT_GE(tokens.size(), static_cast<std::size_t>(kTextTokens));
  tokens.resize(kTextTokens);

  check("stories260K", "f32", path, tokens, true);
  for (const char* type : some_of<const char*>({"f16", "q8_0", "q4_0", "q4_K"}, 2)) {
    const TemporaryFile quantised(std::string("stories-") + type + ".gguf");
    llama_quantize(path, quantised.path(), type);
    check("stories260K", type, quantised.path(), tokens, true);
  }
}

// libllama has no graph of these: tests/graph/plain_model_test.cpp has an oracle for them.
bool libllama_knows(const SyntheticShape& shape) {
  return find_family(shape.architecture).in_libllama && shape.rope_dims != 0;
}

// Optional tensors that it aborts on (MPT) or reads only in a model of 64 layers (Command R+: below).
std::vector<std::string> refused_by_libllama(const std::string& name) {
  if (name == "tiny-mpt" || name == "tiny-command-r") return {"attn_q_norm", "attn_k_norm"};
  return {};
}

void omit(SyntheticShape& shape, const std::vector<std::string>& tensors) {
  shape.omit.insert(shape.omit.end(), tensors.begin(), tensors.end());
}

TEST(LogitsTest, RandomModelsOfEveryFamily) {
  Interleaved thirds(3), some(test_length(1, 1, 3));
  for (const auto& [name, shape] : synthetic_shapes()) {
    if (!name.starts_with("tiny") || !libllama_knows(shape) || some.next() != 0) continue;
    const bool in_f16 = thirds.next() == 0 || long_tests();
    for (const std::string type : {"f32", "f16"}) {
      if (type == "f16" && !in_f16) continue;
      SyntheticShape typed = parse_synthetic(name + "@type=" + type);
      omit(typed, refused_by_libllama(name));
      check_synthetic(typed, name, type);
    }
  }
}

TEST(LogitsTest, HiddenStatesOfEveryFamily) {
  Interleaved some(test_length(1, 1, 4));
  for (const auto& [name, shape] : synthetic_shapes()) {
    if (!name.starts_with("tiny") || !libllama_knows(shape) || some.next() != 0) continue;
    SyntheticShape typed = parse_synthetic(name + "@type=f32");
    omit(typed, refused_by_libllama(name));
    const TemporaryFile file(name + "-hidden.gguf");
    write_synthetic(typed, file.path());
    check_hidden(name, file.path(), random_text(kRandomTokens, 7, typed.vocabulary));
  }
}

TEST(LogitsTest, RandomModelsQuantised) {
  Interleaved turn(6);  // a multiple of both numbers of types
  const auto types_of = [&](const std::vector<std::string>& types) {
    const std::size_t one = static_cast<std::size_t>(turn.next()) % types.size();
    return long_tests() ? types : std::vector<std::string>{types[one]};
  };
  for (const std::string name : {"tiny", "tiny-qwen2", "tiny-qwen3", "tiny-mixtral", "tiny-gptneox", "tiny-phi3",
                                 "tiny-cohere2", "tiny-command-r", "tiny-glm4", "tiny-granite", "tiny-smollm3"})
    for (const std::string& type : types_of({"q8_0", "q4_0", "q4_K"})) {
      SyntheticShape shape = parse_synthetic(name + "@type=" + type);
      shape.omit = refused_by_libllama(name);
      check_synthetic(shape, name, type, shape.experts > 0 ? INFINITY : 2e-3);
    }
  for (const std::string name : {"tiny-lfm2", "tiny-granitehybrid", "tiny-falcon-h1", "tiny-qwen35", "tiny-nemotron_h"})
    for (const std::string& type : types_of({"q8_0", "q4_0"}))
      check_synthetic(parse_synthetic(name + "@type=" + type), name, type, 2e-3);
  // As published: experts in MXFP4, the other matrices in Q8_0. All experts are used: no near ties.
  SyntheticShape gpt_oss = parse_synthetic("tiny-gpt-oss@type=q8_0");
  for (const char* part : {"ffn_gate_exps.weight", "ffn_up_exps.weight", "ffn_down_exps.weight"})
    gpt_oss.type_of[part] = GGML_TYPE_MXFP4;
  gpt_oss.experts_used = gpt_oss.experts;
  check_synthetic(gpt_oss, "tiny-gpt-oss, all experts", "q8_0, experts mxfp4", 2e-3);
}

// A layer of multi-token prediction is the last one of the file. The model is as without it.
TEST(LogitsTest, LayersOfMultiTokenPredictionAreNotUsed) {
  for (const std::string name : {"tiny-glm4moe", "tiny-qwen35"}) {
    SyntheticShape shape = parse_synthetic(name);
    shape.layers = 4;
    const auto without = Model::from(make_synthetic(shape));
    shape.layers = 5;
    shape.keys.push_back({"nextn_predict_layers", ExtraKey::Type::kInteger, 1});
    const auto with = Model::from(make_synthetic(shape));
    EXPECT_EQ(with->hyper().layers, 4);
    EXPECT_EQ(with->hyper().predicting_layers, 1);
    const auto tokens = random_text(50, 7, shape.vocabulary);
    EXPECT_EQ(our_rows(with, tokens, 16), our_rows(without, tokens, 16)) << name;
  }
}

// Optional tensors and features within a family.
TEST(LogitsTest, VariantsOfFamilies) {
  SyntheticShape untied = parse_synthetic("tiny");
  untied.tied = false;
  check_synthetic(untied, "tiny, own output", "f32");

  for (const char* name : {"tiny-stablelm", "tiny-mpt", "tiny-llama", "tiny-falcon-h1"}) {
    SyntheticShape plain = parse_synthetic(name);
    plain.optional_tensors = false;
    check_synthetic(plain, std::string(name) + ", nothing optional", "f32");
  }
  SyntheticShape sequential = parse_synthetic("tiny-gptneox");
  sequential.keys = {{"use_parallel_residual", ExtraKey::Type::kFlag, 0}};
  check_synthetic(sequential, "tiny-gptneox, sequential", "f32");

  check_synthetic(parse_synthetic("tiny-command-r@layers=64"), "tiny-command-r, norms of Q and K", "f32");
  SyntheticShape unscaled = parse_synthetic("tiny-granite");
  unscaled.keys = {{"logit_scale", ExtraKey::Type::kNumber, 4}, {"rope.scaling.finetuned", ExtraKey::Type::kFlag, 0}};
  check_synthetic(unscaled, "tiny-granite, no positions", "f32");
  SyntheticShape alone = parse_synthetic("tiny-granitemoe");
  alone.shared_feed_forward = 0;
  check_synthetic(alone, "tiny-granitemoe, no shared experts", "f32");

  check_synthetic(parse_synthetic("tiny-lfm2@layers=3"), "tiny-lfm2, a convolution last", "f32");
  SyntheticShape hybrid = parse_synthetic("tiny-granitehybrid");
  hybrid.optional_tensors = false;
  hybrid.experts = 8;
  hybrid.experts_used = 2;
  hybrid.shared_feed_forward = 128;
  hybrid.keys = {{"rope.scaling.finetuned", ExtraKey::Type::kFlag, 0}};
  check_synthetic(hybrid, "tiny-granitehybrid, a mixture without positions", "f32");

  SyntheticShape local = parse_synthetic("tiny-olmo2");
  local.layers = 5;
  local.keys = {{"attention.sliding_window", ExtraKey::Type::kInteger, 24}};
  check_synthetic(local, "tiny-olmo2, windows", "f32");
}

// The same of the families whose files differ in size or age.
TEST(LogitsTest, VariantsOfFamiliesInLayersAndParts) {
  SyntheticShape falcon = parse_synthetic("tiny-falcon");
  falcon.second_norm = true;
  check_synthetic(falcon, "tiny-falcon, two norms", "f32");

  SyntheticShape grok = parse_synthetic("tiny-grok");
  grok.shared_feed_forward = 0;
  check_synthetic(grok, "tiny-grok, experts only", "f32");

  check_synthetic(parse_synthetic("tiny-baichuan@layers=40"), "tiny-baichuan, ALiBi", "f32");

  SyntheticShape minicpm = parse_synthetic("tiny-minicpm");
  minicpm.keys.clear();
  check_synthetic(minicpm, "tiny-minicpm, factors of old files", "f32");

  SyntheticShape mimo = parse_synthetic("tiny-mimo2");
  mimo.omit = {"attn_sinks"};
  check_synthetic(mimo, "tiny-mimo2, no sink logits", "f32");

  SyntheticShape gemma = parse_synthetic("tiny-gemma4-moe");
  gemma.gate_up_in_one = false;
  gemma.optional_tensors = false;
  check_synthetic(gemma, "tiny-gemma4-moe, gates apart, nothing optional", "f32");
  gemma.optional_tensors = true;
  gemma.experts = gemma.experts_used = 0;
  check_synthetic(gemma, "tiny-gemma4, dense without embeddings of layers", "f32");

  SyntheticShape cohere = parse_synthetic("tiny-cohere2moe");
  cohere.shared_feed_forward = 0;
  std::erase_if(cohere.keys, [](const ExtraKey& key) { return key.name == "expert_shared_count"; });
  check_synthetic(cohere, "tiny-cohere2moe, no shared experts", "f32");

  for (const char* name : {"tiny-smallthinker", "tiny-mellum", "tiny-plamo3"}) {
    SyntheticShape whole = parse_synthetic(name);
    std::erase_if(whole.keys, [](const ExtraKey& key) { return key.name.starts_with("attention.sliding_window"); });
    check_synthetic(whole, std::string(name) + ", no windows", "f32");
  }

  SyntheticShape yarn = parse_synthetic("tiny-mistral3");
  yarn.rope_scaling = "yarn";
  yarn.rope_factor = 4;
  yarn.original_context = 128;
  yarn.keys.pop_back();
  check_synthetic(yarn, "tiny-mistral3 YaRN x4", "f32");
  yarn.keys.push_back({"rope.scaling.yarn_log_multiplier", ExtraKey::Type::kNumber, 1});
  check_synthetic(yarn, "tiny-mistral3 YaRN x4, multiplier", "f32");
}

// As most layers of published files: no limits; rotary factors, of layers without windows only. All experts: no near
// ties, so that the bound of f16 holds for every token.
TEST(LogitsTest, VariantsOfStep35) {
  SyntheticShape all = parse_synthetic("tiny-step35@type=f16");
  all.experts_used = all.experts;
  check_synthetic(all, "tiny-step35, all experts", "f16");
  SyntheticShape shape = parse_synthetic("tiny-step35");
  std::erase_if(shape.keys, [](const ExtraKey& key) { return key.name.starts_with("swiglu_clamp"); });
  shape.llama3_factors = true;
  shape.original_context = 128;
  shape.omit = {"exp_probs_b"};
  check_synthetic(shape, "tiny-step35, no limits, rotary factors", "f32");
}

// As many experts are chosen as there are groups; groups of three, whose reciprocal is rounded.
TEST(LogitsTest, AdjugateExperts) {
  SyntheticShape all = parse_synthetic("tiny-grovemoe");
  all.experts_used = 4;
  check_synthetic(all, "tiny-grovemoe, as many as groups", "f32");
  SyntheticShape threes = parse_synthetic("tiny-grovemoe");
  threes.experts = 12;
  threes.adjugate_group = 3;
  check_synthetic(threes, "tiny-grovemoe, groups of three", "f32");
}

TEST(LogitsTest, ExpertsOfALatent) {
  SyntheticShape shape = parse_synthetic("tiny-nemotron_h_moe");
  shape.expert_latent = 64;
  check_synthetic(shape, "tiny-nemotron_h_moe, experts of a latent", "f32");
}

// Qwen 3 Next, files of 2025: the delta rule's inputs are one product.
TEST(LogitsTest, DeltaRuleOfOneProduct) {
  SyntheticShape shape = parse_synthetic("tiny-qwen3next");
  shape.delta_in_one = true;
  check_synthetic(shape, "tiny-qwen3next, one product", "f32");
}

// DeepSeek 2: the cache holds the keys and values of all heads (files without matrices per head); queries without a
// latent, in as many layers as libllama knows such a model by; YaRN.
TEST(LogitsTest, FormsOfLatentAttention) {
  SyntheticShape expanded = parse_synthetic("tiny-deepseek2");
  expanded.latent.absorbed = false;
  expanded.kv_heads = expanded.query_heads;
  expanded.head_dim = expanded.latent.key + expanded.rope_dims;
  expanded.value_dim = expanded.latent.value;
  check_synthetic(expanded, "tiny-deepseek2, expanded", "f32");

  SyntheticShape lite = parse_synthetic("tiny-deepseek2@layers=27");
  lite.latent.query_rank = 0;
  lite.width = lite.feed_forward = lite.shared_feed_forward = 64;
  lite.query_heads = 2;
  check_synthetic(lite, "tiny-deepseek2, queries without a latent", "f32");

  SyntheticShape yarn = parse_synthetic("tiny-deepseek2@layers=2");
  yarn.rope_scaling = "yarn";
  yarn.rope_factor = 4;
  yarn.original_context = 128;
  yarn.keys.push_back({"rope.scaling.yarn_log_multiplier", ExtraKey::Type::kNumber, 0.0707});
  check_synthetic(yarn, "tiny-deepseek2 YaRN x4", "f32");
  yarn.keys.pop_back();
  check_synthetic(yarn, "tiny-deepseek2 YaRN x4, no multiplier", "f32");

  SyntheticShape groups = parse_synthetic("tiny-deepseek2@layers=2");
  groups.experts = 16;
  groups.keys.push_back({"expert_group_count", ExtraKey::Type::kInteger, 4});
  groups.keys.push_back({"expert_group_used_count", ExtraKey::Type::kInteger, 2});
  check_synthetic(groups, "tiny-deepseek2, groups of experts", "f32");
}

// Llama 4: a second chunk of the text, where layers with positions see only that chunk, and queries of the others grow.
TEST(LogitsTest, BehindTheFirstChunkOfLlama4) {
#ifdef PALIMPSEST_SANITIZED
  GTEST_SKIP() << "figures only, of 8,252 tokens";
#endif
  SyntheticShape shape = parse_synthetic("tiny-llama4@layers=4@vocab=300@context=16384");
  shape.width = shape.feed_forward = shape.shared_feed_forward = 64;
  shape.query_heads = 2;
  shape.kv_heads = 1;
  const TemporaryFile file("llama4-chunks.gguf");
  write_synthetic(shape, file.path());
  const auto tokens = random_text(8192 + 60, 7, shape.vocabulary);
  const auto theirs = llama_logits(file.path(), tokens, 512);
  const auto model = Model::load(file.path());
  const auto ours = our_rows(model, tokens, 512);
  const auto behind = [&](const std::vector<float>& rows) {
    return std::vector<float>(rows.end() - 60 * shape.vocabulary, rows.end());
  };
  const Difference d = compare(behind(ours), behind(theirs), shape.vocabulary);
  table().push_back({"tiny-llama4, tokens from 8192 on", "f32", 512, d});
  EXPECT_LE(d.of_most, 5e-4);  // ggml's angles are f32: off by up to 8192 * 2^-24
}

// Phi 3 chooses its RoPE factors by the length of the text; libllama, by its context size.
TEST(LogitsTest, LongAndShortRotaryFactors) {
  SyntheticShape shape = parse_synthetic("tiny-phi3");
  shape.long_factors = true;
  shape.original_context = 1024;
  const TemporaryFile file("phi3-factors.gguf");
  write_synthetic(shape, file.path());
  const auto tokens = random_text(kRandomTokens, 7, shape.vocabulary);
  for (const int context : {512, 4096}) {
    const auto theirs = llama_logits(file.path(), tokens, 64, false, context);
    const auto model = Model::load(file.path(), {.context = context});
    const Difference d = compare(our_rows(model, tokens, 64), theirs, shape.vocabulary);
    table().push_back({"tiny-phi3, context " + std::to_string(context), "f32", 64, d});
    EXPECT_LE(d.relative, 1e-4) << context;
  }
}

TEST(LogitsTest, RopeScalings) {
  for (const char* name : {"tiny", "tiny-qwen2"}) {
    SyntheticShape linear = parse_synthetic(name);
    linear.rope_scaling = "linear";
    linear.rope_factor = 4;
    check_synthetic(linear, std::string(name) + " linear x4", "f32");

    SyntheticShape yarn = parse_synthetic(name);
    yarn.rope_scaling = "yarn";
    yarn.rope_factor = 4;
    yarn.original_context = 128;
    check_synthetic(yarn, std::string(name) + " YaRN x4", "f32");
  }
  SyntheticShape factors = parse_synthetic("tiny");
  factors.llama3_factors = true;
  factors.original_context = 128;
  check_synthetic(factors, "tiny Llama 3 factors", "f32");
}

// Rope scaling of the user: the same as libllama's with the same parameters, whatever the file has.
TEST(LogitsTest, RopeScalingOfTheUser) {
  struct Case {
    const char *model, *scaling_of_file;
    RopeSettings rope;
  };
  const std::vector<Case> cases = {
      {"tiny", "", {.scaling = "linear", .scale = 4}},
      {"tiny", "", {.freq_base = 500000}},
      {"tiny", "", {.freq_scale = 0.5}},
      {"tiny", "linear", {.scaling = "none"}},
      {"tiny", "yarn", {.scale = 8}},
      {"tiny", "yarn", {.scaling = "linear"}},
      {"tiny", "", {.scaling = "yarn", .scale = 4, .original_context = 128}},
      {"tiny-qwen2", "", {.scaling = "yarn", .scale = 4, .beta_slow = 2, .beta_fast = 16, .original_context = 128}},
      {"tiny-qwen3", "", {.scaling = "yarn", .scale = 4, .ext_factor = 0.5, .original_context = 128}},
      {"tiny-gemma3", "", {.scaling = "yarn", .scale = 4, .freq_base = 100000, .original_context = 128}},
      {"tiny-cohere2", "", {.scaling = "linear", .scale = 4}},
      {"tiny-olmo2", "", {.scaling = "yarn", .scale = 4, .original_context = 128}},
      {"tiny-deepseek2", "", {.scaling = "yarn", .scale = 4, .original_context = 128}},
      {"tiny-phi3", "", {.scaling = "linear", .scale = 2}},
  };
  for (const Case& c : cases) {
    SyntheticShape shape = parse_synthetic(std::string(c.model) + "@type=f32");
    shape.rope_scaling = c.scaling_of_file;
    if (!shape.rope_scaling.empty()) shape.rope_factor = 4, shape.original_context = 128;
    const TemporaryFile file("rope-of-user.gguf");
    write_synthetic(shape, file.path());
    const auto tokens = random_text(kRandomTokens, 7, shape.vocabulary);
    const auto model = Model::load(file.path(), {.rope = c.rope});
    const auto ours = our_rows(model, tokens, 64);
    const Difference d = compare(ours, llama_logits_with_rope(file.path(), tokens, c.rope), shape.vocabulary);
    const std::string name =
        fmt::format("{}{} of the user{}", c.model, c.rope.scaling.empty() ? "" : ", " + c.rope.scaling,
                    shape.rope_scaling.empty() ? "" : ", file " + shape.rope_scaling);
    table().push_back({name, "f32", 64, d});
    SCOPED_TRACE(name);
    EXPECT_LE(model->family().activation == Activation::kGelu || model->hyper().experts > 0 ? d.of_most : d.relative,
              model->family().activation == Activation::kGelu ? 1e-2 : 1e-4);
    EXPECT_GT(compare(ours, llama_logits(file.path(), tokens, 64), shape.vocabulary).relative, 1e-3);
  }
}

class PrintTable : public ::testing::Environment {
  void TearDown() override {
    if (table().empty()) return;
    std::puts("| model | weights | chunk | greatest relative error | mean KL | same top token |");
    std::puts("|---|---|---|---|---|---|");
    for (const Measured& r : table())
      std::printf("| %s | %s | %d | %.1e | %.1e | %.2f%% |\n", r.model.c_str(), r.weights.c_str(), r.chunk,
                  r.d.relative, r.d.divergence, 100 * r.d.same_top);
  }
};
const auto* const kPrintTable = ::testing::AddGlobalTestEnvironment(new PrintTable);

}  // namespace
}  // namespace palimpsest::testing
