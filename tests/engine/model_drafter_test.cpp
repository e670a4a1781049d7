#include "palimpsest/engine/speculation/model_drafter.h"

#include <gtest/gtest.h>

#include <random>

#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/engine/session_options.h"
#include "tests/support/error_message.h"
#include "tests/support/random_tokens.h"

namespace palimpsest::testing {
namespace {

ModelDrafter drafter_of(const std::string& method, const std::string& shape = "tiny", int context = 4096) {
  SyntheticShape synthetic = parse_synthetic(shape);
  synthetic.context = context;
  return ModelDrafter(std::make_shared<Decoder>(Model::from(make_synthetic(synthetic)), 1), session_options(method), 0);
}

TEST(ModelDrafter, RefusesWhatCannotForgetDrafts) {
  const auto message = [](const std::string& method, const std::string& shape = "tiny") {
    return error_message([&] { drafter_of(method, shape); });
  };
  EXPECT_NE(message("window-recompute:budget=40").find("no cache"), std::string::npos);
  EXPECT_NE(message("ems:budget=40").find("merge changes kept tokens"), std::string::npos);
  EXPECT_NE(message("full", "tiny-gemma2").find("attention window"), std::string::npos);
  EXPECT_NE(message("full", "tiny-lfm2").find("recurrent state"), std::string::npos);
  for (const char* method : {"full", "streaming:budget=40", "h2o:budget=40", "snapkv:budget=40,mechanism=shift"})
    EXPECT_EQ(message(method), "") << method;
}

TEST(ModelDrafter, RejectedDraftsAreForgotten) {
  for (const char* method : {"full", "streaming:budget=24", "h2o:budget=32", "keydiff:budget=32,every=4"}) {
    SCOPED_TRACE(method);
    ModelDrafter drafter = drafter_of(method);
    std::mt19937 random(2);
    drafter.append(random_tokens(10, 1));
    for (int step = 0; step < 20; ++step) {
      const auto drafts = drafter.draft(4);
      ASSERT_EQ(drafts.size(), 4U) << drafter.failure();
      std::vector<TokenId> next(drafts.begin(), drafts.begin() + random() % 5);
      next.push_back(static_cast<TokenId>(random() % 96));
      drafter.append(next);
    }
  }
}

TEST(ModelDrafter, DraftsEndWithTheLearnedPositionsNotTheText) {
  ModelDrafter drafter = drafter_of("full", "tiny-gpt2", 32);
  drafter.append(random_tokens(20, 1));
  EXPECT_EQ(drafter.draft(4).size(), 4U);
  EXPECT_EQ(drafter.failure(), "");
  drafter.append(random_tokens(20, 2));
  EXPECT_TRUE(drafter.draft(4).empty());
  EXPECT_NE(drafter.failure().find("learned positions"), std::string::npos) << drafter.failure();
  drafter.append(random_tokens(3, 3));
  EXPECT_TRUE(drafter.draft(4).empty());
}

}  // namespace
}  // namespace palimpsest::testing
