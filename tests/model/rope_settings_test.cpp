// Rope scaling of the user becomes overrides of the file's metadata: what the trained context then is, and which
// values are refused. Logits are compared with libllama's in tests/graph/logits_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "palimpsest/model/fingerprint.h"
#include "palimpsest/model/model.h"
#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/error_of.h"

namespace palimpsest::testing {
namespace {

SyntheticShape shape_of(const std::string& scaling = "", double factor = 1, int original = 0) {
  SyntheticShape shape = parse_synthetic("tiny@layers=1@vocab=300@context=4096");
  shape.rope_scaling = scaling;
  shape.rope_factor = factor;
  shape.original_context = original;
  return shape;
}

std::shared_ptr<const Model> loaded(const SyntheticShape& shape, const RopeSettings& rope) {
  return Model::from(make_synthetic(shape), {.rope = rope});
}

TEST(RopeSettingsTest, TheTrainedContextIsTheOriginalOneTimesTheScale) {
  struct Case {
    SyntheticShape shape;
    RopeSettings rope;
    int context;
  };
  const std::vector<Case> cases = {
      {shape_of(), {}, 4096},
      {shape_of(), {.scaling = "linear", .scale = 4}, 16384},
      {shape_of(), {.scaling = "yarn", .scale = 4}, 16384},
      {shape_of(), {.scaling = "yarn", .scale = 4, .original_context = 1000}, 4000},
      {shape_of(), {.scaling = "dynamic", .scale = 2}, 8192},
      {shape_of(), {.freq_scale = 0.25}, 16384},
      {shape_of(), {.freq_base = 1e6}, 4096},
      // A context of 4096 with a factor of 4: 1024 without.
      {shape_of("linear", 4), {.scaling = "none"}, 1024},
      {shape_of("linear", 4), {.scale = 8}, 8192},
      {shape_of("yarn", 4, 1024), {.scaling = "none"}, 1024},
      {shape_of("yarn", 4, 1024), {.scale = 8}, 8192},
      {shape_of("yarn", 4, 1024), {.beta_fast = 16}, 4096},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.shape.rope_scaling + " -> " + c.rope.scaling);
    EXPECT_EQ(loaded(c.shape, c.rope)->hyper().trained_context, c.context);
  }
}

TEST(RopeSettingsTest, AreWhatTheFileWouldSay) {
  SyntheticShape same = shape_of("yarn", 4, 4096);
  same.keys = {{"rope.scaling.yarn_beta_fast", ExtraKey::Type::kNumber, 16},
               {"rope.scaling.yarn_ext_factor", ExtraKey::Type::kNumber, 0.5},
               {"rope.scaling.yarn_attn_factor", ExtraKey::Type::kNumber, 2}};
  const RopeSettings rope = {.scaling = "yarn", .scale = 4, .ext_factor = 0.5, .attn_factor = 2, .beta_fast = 16};
  const RopeOptions of_file = loaded(same, {})->hyper().rope;
  EXPECT_EQ(loaded(shape_of(), rope)->hyper().rope, of_file);
  EXPECT_DOUBLE_EQ(of_file.yarn_attn_factor, 2);
  EXPECT_EQ(of_file.original_context, 4096);

  // NTK by the base, of a context of 2 x 4096 in 32 dimensions.
  const RopeOptions dynamic = loaded(shape_of(), {.scaling = "dynamic", .scale = 2})->hyper().rope;
  EXPECT_NEAR(dynamic.base, 10000 * std::pow(2 * 2 - (2 - 1), 32.0 / 30), 1e-6);
  EXPECT_EQ(dynamic.linear_scale, 1);
}

TEST(RopeSettingsTest, BadValuesAreRefusedInOneSentence) {
  struct Case {
    RopeSettings rope;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{.scaling = "ntk"}, "give none, linear, yarn or dynamic"},
      {{.scaling = "yarn"}, "needs a scale"},
      {{.scaling = "linear", .scale = -4}, "--rope-scale -4: give a number"},
      {{.scaling = "linear", .scale = NAN}, "--rope-scale nan"},
      {{.scaling = "linear", .scale = 1e6}, "a context of 4096 x 1000000"},
      {{.scale = 4, .freq_scale = 0.25}, "give one of them"},
      {{.freq_scale = 1e-9}, "--rope-freq-scale"},
      {{.scaling = "none", .scale = 4}, "none has no scale"},
      {{.freq_base = 0.5}, "--rope-freq-base 0.5"},
      {{.ext_factor = 1}, "need --rope-scaling yarn"},
      {{.scaling = "linear", .scale = 2, .beta_fast = 16}, "need --rope-scaling yarn"},
      {{.original_context = 128}, "--yarn-orig-ctx needs"},
      {{.scaling = "yarn", .scale = 2, .original_context = -5}, "--yarn-orig-ctx -5"},
      {{.scaling = "yarn", .scale = 2, .beta_slow = -1}, "--yarn-beta-slow -1"},
  };
  for (const Case& c : cases) {
    const std::string message = error_of([&] { loaded(shape_of(), c.rope); });
    EXPECT_NE(message.find(c.says), std::string::npos) << message << "\nwanted: " << c.says;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  for (const char* name : {"tiny-gpt2", "tiny-mpt"})
    EXPECT_NE(error_of([&] {
                Model::synthetic(name, {.rope = {.scaling = "linear", .scale = 2}});
              }).find("has no rotary positions"),
              std::string::npos);
}

// A cache of other frequencies is another model's; files of `palimpsest fit` are of the weights.
TEST(RopeSettingsTest, AreInTheFingerprintOfCaches) {
  const auto plain = loaded(shape_of(), {}), scaled = loaded(shape_of(), {.scaling = "linear", .scale = 4}),
             more = loaded(shape_of(), {.scaling = "linear", .scale = 8});
  EXPECT_EQ(fingerprint(*plain), fingerprint(*scaled));
  EXPECT_EQ(cache_fingerprint(*plain), fingerprint(*plain));
  EXPECT_NE(cache_fingerprint(*plain), cache_fingerprint(*scaled));
  EXPECT_NE(cache_fingerprint(*more), cache_fingerprint(*scaled));
}

}  // namespace
}  // namespace palimpsest::testing
