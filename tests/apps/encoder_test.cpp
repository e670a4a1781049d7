// Encoders on the command line: `info` describes them, `serve` takes them, what writes text refuses them.
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/support/tiny_encoder.h"

namespace palimpsest::testing {
namespace {

TEST(EncoderCommands, InfoDescribesOne) {
  const std::string path = tiny_encoder({.pooling = 2});
  const auto json = nlohmann::json::parse(command({"info", path, "--json"}).out);
  EXPECT_EQ(json["architecture"], "bert");
  EXPECT_EQ(json["encoder"], true);
  EXPECT_EQ(json["pooling"], "cls");
  EXPECT_EQ(json["trained_context"], 64);
  EXPECT_EQ(json["vocabulary"]["kind"], "WPM");
  EXPECT_EQ(json["endpoints"], nlohmann::json({"/v1/embeddings", "/v1/rerank"}));
  const Finished text = command({"info", path});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("an encoder: it writes no text"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("/v1/embeddings and /v1/rerank"), std::string::npos) << text.out;
  const Finished ranks = command({"info", tiny_encoder({.pooling = 4, .head = true}, "ranks.gguf")});
  EXPECT_EQ(ranks.out.find("/v1/embeddings"), std::string::npos) << ranks.out;
  EXPECT_NE(command({"info", "--families"}).out.find("encoders, for serve: bert"), std::string::npos);
}

TEST(EncoderCommands, Refusals) {
  const std::string path = tiny_encoder({});
  expect_refused({"run", "-m", path, "-p", "the cat"},
                 "is an encoder, which writes no text; `palimpsest serve` answers");
  expect_refused({"bench", "decode", "-m", path}, "is an encoder, which writes no text");
  expect_refused({"serve", "-m", path, "--port", "0", "--pooling", "rank"}, "no classification head");
  expect_refused({"serve", "-m", path, "--port", "0", "--pooling", "max"}, "an encoder takes mean, cls, last or rank");
  expect_refused({"serve", "-m", path, "--port", "0", "--lora", path}, "--lora: does not apply to encoders");
  expect_refused({"serve", "-m", path, "--port", "0", "--budget", "64"}, "--budget: does not apply to encoders");
  expect_refused({"serve", "-m", default_model(), "--port", "0", "--pooling", "cls"},
                 "encoders also take cls and rank");
}

}  // namespace
}  // namespace palimpsest::testing
