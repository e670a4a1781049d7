// Options of samplers by name, and what a model file recommends.
#include "palimpsest/text/sampler_fields.h"

#include <gtest/gtest.h>

#include <vector>

#include "palimpsest/core/error.h"
#include "palimpsest/text/vocabulary.h"
#include "tests/support/error_of.h"
#include "tests/support/shared_dir.h"

namespace palimpsest::testing {
namespace {

SamplerOptions recommended(const std::vector<const char*>& metadata) {
  std::vector<GgufOverride> overrides;
  for (const char* each : metadata) overrides.push_back(parse_override(each));
  return recommended_sampling(*Vocabulary::load(default_model(), overrides));
}

TEST(SamplerFields, AModelFileMayRecommend) {
  const SamplerOptions none = recommended({});
  EXPECT_EQ(none.temperature, 0.8F);
  EXPECT_EQ(none.top_k, 40);
  EXPECT_EQ(none.top_p, 0.95F);
  EXPECT_EQ(none.min_p, 0.05F);
  const SamplerOptions some =
      recommended({"general.sampling.temp=float:0.6", "general.sampling.top_k=int:20",
                   "general.sampling.top_p=float:0.5", "general.sampling.min_p=float:0",
                   "general.sampling.xtc_probability=float:0.25", "general.sampling.xtc_threshold=float:0.2",
                   "general.sampling.penalty_last_n=int:32", "general.sampling.penalty_repeat=float:1.25",
                   "general.sampling.mirostat=int:2", "general.sampling.mirostat_tau=float:4",
                   "general.sampling.mirostat_eta=float:0.5", "general.sampling.sequence=str:top_k;temperature"});
  EXPECT_EQ(some.temperature, 0.6F);
  EXPECT_EQ(some.top_k, 20);
  EXPECT_EQ(some.top_p, 0.5F);
  EXPECT_EQ(some.min_p, 0);
  EXPECT_EQ(some.xtc_probability, 0.25F);
  EXPECT_EQ(some.xtc_threshold, 0.2F);
  EXPECT_EQ(some.penalty_last_n, 32);
  EXPECT_EQ(some.repeat_penalty, 1.25F);
  EXPECT_EQ(some.mirostat, 2);
  EXPECT_EQ(some.mirostat_tau, 4);
  EXPECT_EQ(some.mirostat_eta, 0.5F);
  EXPECT_EQ(some.samplers, (std::vector{SamplerKind::kTopK, SamplerKind::kTemperature}));
}

TEST(SamplerFields, ABadRecommendationIsRefusedWithARemedy) {
  const auto says = [](const char* metadata, const char* part) {
    const std::string error = error_of([&] { recommended({metadata}); });
    EXPECT_NE(error.find(part), std::string::npos) << error;
    EXPECT_NE(error.find("--override-kv general.sampling."), std::string::npos) << error;
  };
  says("general.sampling.top_p=float:2", "top_p is 2");
  says("general.sampling.top_k=str:many", "'many'");
  says("general.sampling.temp=str:nan", "give a number up to 1000");
  says("general.sampling.sequence=str:best", "no sampler 'best'");
}

TEST(SamplerFields, SamplersByNameAndLetter) {
  EXPECT_EQ(parse_samplers("edskypmxt"), SamplerOptions().samplers);
  EXPECT_EQ(parse_samplers("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"),
            SamplerOptions().samplers);
  EXPECT_EQ(parse_samplers("typical_p"), std::vector{SamplerKind::kTypicalP});
  EXPECT_TRUE(parse_samplers("").empty());
  EXPECT_NE(error_of([] { parse_samplers("top_k;;top_p"); }).find("no sampler ''"), std::string::npos);
}

TEST(SamplerFields, NumbersByNameOrAlias) {
  SamplerOptions options;
  EXPECT_TRUE(set_number(options, "repetition_penalty", 1.5));
  EXPECT_EQ(options.repeat_penalty, 1.5F);
  EXPECT_TRUE(set_number(options, "top_k", 7));
  EXPECT_EQ(options.top_k, 7);
  EXPECT_FALSE(set_number(options, "top_q", 7));
  EXPECT_NE(error_of([&] { set_number(options, "top_k", 7.5); }).find("top_k is 7.5"), std::string::npos);
  EXPECT_NE(error_of([&] { set_number(options, "top_p", 7); }).find("top_p is 7"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
