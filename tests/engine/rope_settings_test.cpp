// Rope scaling of the user in sessions: every kind of positions, and rotation again, use the scaled frequencies. The
// oracle is a file that has the same scaling in its metadata.
#include "palimpsest/model/rope_settings.h"

#include <gtest/gtest.h>

#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_of.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

constexpr int kOriginal = 32, kScale = 4, kTokens = 200;

SyntheticShape small_shape() {
  return {.vocabulary = 96,
          .width = 64,
          .layers = 2,
          .feed_forward = 96,
          .query_heads = 4,
          .kv_heads = 2,
          .head_dim = 32,
          .context = kOriginal};
}

std::shared_ptr<Decoder> scaled_by_user() {
  const RopeSettings rope = {.scaling = "yarn", .scale = kScale};
  return std::make_shared<Decoder>(Model::from(make_synthetic(small_shape()), {.rope = rope}), 1);
}

std::shared_ptr<Decoder> scaled_by_file() {
  SyntheticShape shape = small_shape();
  shape.rope_scaling = "yarn";
  shape.rope_factor = kScale;
  shape.original_context = kOriginal;
  shape.context = kOriginal * kScale;
  return std::make_shared<Decoder>(Model::from(make_synthetic(shape)), 1);
}

std::vector<float> all_logits(const std::shared_ptr<Decoder>& decoder, const std::string& method) {
  Session session(decoder, session_options(method, 16));
  std::vector<float> out;
  session.read(random_tokens(kTokens, 1, 96),
               [&](long long, std::span<const float> logits) { out.insert(out.end(), logits.begin(), logits.end()); });
  return out;
}

TEST(RopeSettingsOfSessions, AreThoseOfTheFileForAllPositions) {
  const auto user = scaled_by_user(), file = scaled_by_file(),
             plain = std::make_shared<Decoder>(Model::from(make_synthetic(small_shape())), 1);
  for (const std::string method :
       {"full", "streaming:budget=48,positions=cache", "knorm:budget=48,positions=original",
        "knorm:budget=48,positions=auto", "keydiff:budget=48,every=4,positions=auto", "snapkv:budget=48",
        "streaming:budget=48,positions=cache,mechanism=shift", "knorm:budget=48,positions=auto,rerotate=cached-half"}) {
    const auto mine = all_logits(user, method);
    EXPECT_EQ(mine, all_logits(file, method)) << method;
    EXPECT_NE(mine, all_logits(plain, method)) << method;
  }
}

// `auto` keeps what the scaled model was trained on.
TEST(RopeSettingsOfSessions, AutoTakesTheScaledContext) {
  SessionOptions options = session_options("auto", 16);
  options.auto_memory = std::size_t{1} << 30;
  const auto budget = [&](const std::shared_ptr<Decoder>& decoder) {
    return Session(decoder, options).method().budget;
  };
  EXPECT_EQ(budget(scaled_by_user()), budget(scaled_by_file()));
  EXPECT_GT(budget(scaled_by_user()), kOriginal);
}

}  // namespace
}  // namespace palimpsest::testing
