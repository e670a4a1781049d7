// Rope scaling on the command line (model/rope_settings.h has the rules; tests/model and tests/graph their tests).
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

class RopeFlags : public WithDefaultModel {
 protected:
  nlohmann::json info(const Words& flags) const {
    Words words = {"info", "-m", model_, "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Finished done = command(words);
    EXPECT_EQ(done.code, 0) << done.err;
    return nlohmann::json::parse(done.out);
  }
};

TEST_F(RopeFlags, TheTrainedContextIsScaled) {
  const auto plain = info({}), scaled = info({"--rope-scaling", "yarn", "--rope-scale", "4"});
  const int context = plain["trained_context"].get<int>();
  EXPECT_EQ(scaled["trained_context"], 4 * context);
  EXPECT_EQ(scaled["rope"]["linear_scale"], 4);
  EXPECT_EQ(scaled["rope"]["yarn_original_context"], context);
  EXPECT_EQ(info({"--rope-freq-scale", "0.5"})["trained_context"], 2 * context);
  EXPECT_EQ(info({"--rope-freq-base", "50000"})["rope"]["base"], 50000);
}

// llama.cpp's numbers for "the model's".
TEST_F(RopeFlags, UnsetValuesOfLlamaCppChangeNothing) {
  EXPECT_EQ(info({"--rope-freq-base", "0", "--rope-scale", "0", "--yarn-ext-factor", "-1", "--yarn-attn-factor", "-1",
                  "--yarn-beta-slow", "-1", "--yarn-beta-fast", "-1", "--yarn-orig-ctx", "0"}),
            info({}));
}

TEST_F(RopeFlags, TextsDependOnThem) {
  const Words words = {"--temp", "0", "-n", "40", "-p", "One day", "--method", "streaming:budget=64"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), words.begin(), words.end());
    const Finished done = run(more);
    EXPECT_EQ(done.code, 0) << done.err;
    return done.out;
  };
  const std::string linear = with({"--rope-scaling", "linear", "--rope-scale", "8"});
  EXPECT_NE(linear, with({}));
  EXPECT_EQ(linear, with({"--rope-freq-scale", "0.125"}));
}

TEST_F(RopeFlags, BadValuesGetASentence) {
  const auto refused = [&](const Words& flags, const std::string& part) {
    for (const char* name : {"run", "info"}) {
      Words words = {name, "-m", model_};
      words.insert(words.end(), flags.begin(), flags.end());
      expect_refused(words, part);
    }
  };
  refused({"--rope-scaling", "ntk"}, "give none, linear, yarn or dynamic");
  refused({"--rope-scaling", "yarn"}, "give --rope-scale");
  refused({"--rope-scale", "-2"}, "--rope-scale -2");
  refused({"--rope-scale", "many"}, "--rope-scale");
  refused({"--yarn-beta-fast", "16"}, "need --rope-scaling yarn");
}

}  // namespace
}  // namespace palimpsest::testing
