// palimpsest eval.
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class EvalTest : public WithStories {
 protected:
  void SetUp() override {
    WithStories::SetUp();
    plot_ = (fs::temp_directory_path() / ("palimpsest-eval-" + std::to_string(::getpid()) + ".svg")).string();
    fs::remove(plot_);
  }
  void TearDown() override { fs::remove(plot_); }
  std::string book() const { return (folder_.parent_path().parent_path() / "text/pg19-test/10146.txt").string(); }
  void expect_plot() const {
    std::ifstream file(plot_);
    const std::string svg{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(svg.starts_with("<svg ")) << svg.substr(0, 50);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
  }
  std::string plot_;
};

TEST_F(EvalTest, PerplexityOfSeveralMethods) {
  if (!published_) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  const Finished done = command(on({"eval", "perplexity", "-f", book(), "--gutenberg", "--tokens", "700", "--method",
                                    "full", "--method", "streaming:budget=128", "--plot", plot_, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["tokens"], 700);
  EXPECT_EQ(out["bos"], true);
  EXPECT_EQ(out["cleaning"].size(), 2u);
  ASSERT_EQ(out["runs"].size(), 2u);
  for (const json& run : out["runs"]) {
    EXPECT_EQ(run["predicted"], 699);
    EXPECT_EQ(run["complete"], true);
    EXPECT_NEAR(run["perplexity"].get<double>(), std::exp(run["nll"].get<double>()), 1e-6);
    EXPECT_EQ(run["curve"].front()["from"], 1);
    EXPECT_EQ(run["curve"].back()["to"], 700);
  }
  EXPECT_EQ(out["runs"][0]["evicted"], 0);
  EXPECT_EQ(out["runs"][1]["evicted"], 699 - 128);
  expect_plot();
}

TEST_F(EvalTest, Stream) {
  const Finished done = command(on({"eval", "stream", "--budget", "64", "--tokens", "400", "--windows", "10",
                                    "--settled", "100", "--seed", "1", "--plot", plot_, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json out = json::parse(done.out);
  EXPECT_EQ(out["tokens"], 400);
  EXPECT_EQ(out["seed"], 1);
  EXPECT_EQ(out["windows"].size(), 10u);
  EXPECT_EQ(out["tpot_ms_by_tenth"]["median"].size(), 10u);
  EXPECT_TRUE(out["growth_bytes"].is_number_integer());
  EXPECT_EQ(out["evicted"], 401 - 64);
  expect_plot();
}

TEST_F(EvalTest, CompareTellsEqualFromDifferent) {
  if (!published_) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  const Words same = on({"eval", "compare", "-f", book(), "--tokens", "200", "--cache-type", "f32", "--budget", "64",
                         "--check", "--json"});
  const Finished equal = command(same);
  ASSERT_EQ(equal.code, 0) << equal.err;
  const json row = json::parse(equal.out)["rows"][0];
  EXPECT_EQ(row["steps"], 200);
  EXPECT_EQ(row["evicted"], 200 - 64);
  EXPECT_LE(row["greatest_relative_difference"], 1e-5);
  const Finished different = command(on({"eval", "compare", "-f", book(), "--tokens", "200", "--method",
                                         "streaming:budget=64", "--method", "streaming:budget=32", "--check"}));
  EXPECT_EQ(different.code, 1);
}

TEST_F(EvalTest, RefusesNonsense) {
  if (!published_) GTEST_SKIP() << "needs shared/models (set PALIMPSEST_SHARED)";
  expect_refused(on({"eval", "perplexity", "-f", "/no/such/book"}), "/no/such/book");
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "1"}), "--tokens");
  expect_refused(on({"eval", "perplexity", "-f", model_}), "UTF-8");
  expect_refused(on({"eval", "perplexity", "-f", book(), "--tokens", "50", "--plot", "/nowhere/at/all.svg"}),
                 "/nowhere");
  expect_refused(on({"eval", "compare", "-f", book(), "--method", "full"}), "two methods");
  expect_refused({"eval", "perplexity", "--synthetic", "tiny", "-f", book()}, "vocabulary");
}

}  // namespace
}  // namespace palimpsest::testing
