// palimpsest info.
#include <fmt/format.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

using InfoTest = WithDefaultModel;

struct KnownModel {
  int parameters, layers, kv_heads, head_dim, context, vocabulary, tensors;
  std::vector<std::string> parts;
};

void expect_info(const std::string& path, const KnownModel& is) {
  const Finished done = command({"info", path, "--json", "--budget", "100", "--cache-type", "f32"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["parameters"], is.parameters);
  EXPECT_EQ(json["layers"], is.layers);
  EXPECT_EQ(json["kv_heads"], is.kv_heads);
  EXPECT_EQ(json["head_dim"], is.head_dim);
  EXPECT_EQ(json["trained_context"], is.context);
  EXPECT_EQ(json["vocabulary"]["tokens"], is.vocabulary);
  EXPECT_EQ(json["tensors"][0]["count"], is.tensors);
  const int token = is.layers * is.kv_heads * 2 * is.head_dim * 4;  // key and value, f32
  EXPECT_EQ(json["cache"]["bytes_per_token"], token);
  EXPECT_EQ(json["cache"]["bytes_at_budget"], 100 * token);

  const Finished text = command({"info", "-m", path});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("llama"), std::string::npos);
  for (const std::string& part : is.parts) EXPECT_NE(text.out.find(part), std::string::npos) << part << text.out;
}

TEST_F(InfoTest, SaysWhatTheFileHolds) {
  expect_info(default_model(),
              {5213440,
               6,
               2,
               64,
               2048,
               3072,
               13,
               {"5,213,440", "6 layers", "4 query heads, 2 KV heads", "3,072 tokens, BPE", "3.0 KiB per token"}});
}

TEST_F(InfoTest, SaysWhatStories260KHolds) {
  const auto path = stories260k();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  expect_info(*path, {260032,
                      5,
                      4,
                      8,
                      512,
                      512,
                      47,
                      {"260,032", "5 layers", "8 query heads, 4 KV heads", "512 tokens, SPM", "640 B per token"}});
}

// The computed cache sizes equal those that a run reports.
TEST_F(InfoTest, CacheTermsAreWhatARunHolds) {
  const Words method = {"--method", "streaming:budget=100", "--page-size", "32"};
  Words info = {"info", model_, "--cache", "--json", "--batch", "3"},
        run = {"--tokens", "300", "--ignore-eos", "--json"};
  info.insert(info.end(), method.begin(), method.end());
  run.insert(run.end(), method.begin(), method.end());
  const Finished done = command(info);
  ASSERT_EQ(done.code, 0) << done.err;
  const auto terms = nlohmann::json::parse(done.out)["cache"]["footprint"];
  const auto held = nlohmann::json::parse(this->run(run).out);
  EXPECT_EQ(terms["writing"]["bytes_in_use"], held["cache_bytes"]);
  EXPECT_EQ(terms["writing"]["bytes_in_use"], held["cache_bytes_peak"]);
  EXPECT_EQ(terms["writing"]["bytes_in_use"], 4 * 32 * token_bytes_);  // pages of each head, slots
  EXPECT_EQ(terms["reading"]["tokens"], 99 + 512);
  for (const char* part : {"writing", "reading"}) {
    std::size_t sum = 0;
    for (const auto& term : terms[part]["terms"]) {
      std::size_t product = 1;
      for (const auto& factor : term["factors"]) product *= factor["count"].get<std::size_t>();
      EXPECT_EQ(product, term["bytes"]) << term["name"];
      sum += product;
    }
    EXPECT_EQ(terms[part]["bytes"], sum);
    EXPECT_EQ(terms[part]["bytes_of_batch"], 3 * sum);
  }

  const Finished text = command({"info", model_, "--cache", "--batch", "2"});
  EXPECT_EQ(text.code, 0) << text.err;
  const std::string product = fmt::format("{} layers x {} KV heads x 4 pages x 64 slots x {} bytes of a row", layers_,
                                          kv_heads_, 2 * 2 * head_dim_);
  for (const std::string& part :
       {product, std::string("Prefill in chunks"), std::string("2 sequences"), std::string("at most 256 tokens")})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << text.out;
  const Finished whole = command({"info", model_, "--cache", "--method", "ems"});  // keeps the prompt until its end
  EXPECT_NE(whole.out.find("chunks of 512: at most 2,048 tokens"), std::string::npos) << whole.out << whole.err;
  const Finished full = command({"info", model_, "--cache", "--method", "full", "--tokens", "1000"});
  EXPECT_NE(full.out.find("at most 1,000 tokens"), std::string::npos) << full.out << full.err;
}

// The heads of a split hold their budgets from the file.
TEST_F(InfoTest, CacheTermsOfASplit) {
  const auto file = std::filesystem::path(testing::own_file("split.txt"));
  std::ofstream(file) << "* * 64\n1 * 200\n";
  const std::string method = "streaming:budget=100,split=" + file.string();
  const Finished done =
      command({"info", model_, "--cache", "--json", "--cache-type", "f32", "--page-size", "32", "--method", method});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  const auto cache = json["cache"], writing = cache["footprint"]["writing"];
  const auto heads = json["kv_heads"].get<std::size_t>(), layers = json["layers"].get<std::size_t>();
  const auto row = 2 * json["head_dim"].get<std::size_t>() * sizeof(float);
  EXPECT_EQ(writing["tokens"], 200);
  EXPECT_EQ(writing["tokens_min"], 64);
  EXPECT_EQ(writing["bytes_in_use"], heads * (7 + (layers - 1) * 2) * 32 * row);
  EXPECT_EQ(cache["bytes_at_budget"], heads * (200 + (layers - 1) * 64) * row);
  EXPECT_NE(command({"info", model_, "--cache", "--method", method}).out.find("at most 64 to 200 tokens"),
            std::string::npos);
}

// Keys and values of different types; the flag of one overrides the flag of both.
TEST_F(InfoTest, TypesOfKeysAndOfValues) {
  const auto cache_of = [&](Words flags) {
    flags.insert(flags.begin(), {"info", model_, "--json", "--budget", "64"});
    const Finished done = command(flags);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  };
  const auto bytes = [&](const Words& flags) {
    const auto json = cache_of(flags);
    const auto rows = json["layers"].get<long long>() * json["kv_heads"].get<long long>() * 64;
    return static_cast<double>(json["cache"]["bytes_at_budget"].get<long long>()) /
           static_cast<double>(rows * json["head_dim"].get<long long>());
  };
  EXPECT_EQ(bytes({}), 2 + 2);
  EXPECT_EQ(bytes({"--cache-type-k", "f32"}), 4 + 2);
  EXPECT_EQ(bytes({"--cache-type-v", "f32", "--cache-type", "bf16"}), 2 + 4);
  EXPECT_EQ(bytes({"-ctk", "f32", "-ctv", "bf16"}), 4 + 2);
  EXPECT_EQ(cache_of({"-ctk", "f32", "-ctv", "bf16"})["cache"]["type"], "f32/bf16");
  EXPECT_EQ(cache_of({"-ctk", "f32", "-ctv", "f32"})["cache"]["type"], "f32");
  const Finished terms = command({"info", model_, "--cache", "--cache-type-v", "f32"});
  EXPECT_NE(terms.out.find("f16/f32 keys and values, pages of 64 slots"), std::string::npos) << terms.out << terms.err;
}

TEST_F(InfoTest, TheModelCanComeFromTheEnvironment) {
  const Finished done = run_program(command_path(), {"info", "--json"}, "", {{"PALIMPSEST_MODEL", model_}});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(nlohmann::json::parse(done.out)["model"], model_);
}

TEST(Info, Synthetic) {
  const Finished done = command({"info", "--synthetic", "llama-3.2-1b@layers=1@type=q4_0@vocab=1000", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto json = nlohmann::json::parse(done.out);
  EXPECT_EQ(json["layers"], 1);
  EXPECT_TRUE(json["vocabulary"].is_null());
}

// The default method suits every model; a method given by the user that does not suit the model is refused.
TEST(Info, ModelsWithLearnedPositions) {
  const Finished done = command({"info", "--synthetic", "tiny-opt", "--cache", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(nlohmann::json::parse(done.out)["cache"]["footprint"]["method"].get<std::string>().find("original"),
            std::string::npos);
  EXPECT_EQ(command({"info", "--synthetic", "tiny-opt", "--method", "streaming"}).code, 2);
}

TEST(Info, Lists) {
  EXPECT_TRUE(command({"info", "--devices"}).out.starts_with("cpu "));
  EXPECT_EQ(nlohmann::json::parse(command({"info", "--devices", "--json"}).out)[0]["name"], "cpu");
  EXPECT_NE(command({"info", "--families"}).out.find("qwen3"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
