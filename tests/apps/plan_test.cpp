// palimpsest plan.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using PlanTest = WithDefaultModel;
nlohmann::json plan_json(std::vector<std::string> words) {
  words.push_back("--json");
  const Finished done = command(words);
  EXPECT_EQ(done.code, 0) << done.err;
  return nlohmann::json::parse(done.out);
}

TEST_F(PlanTest, CountsRequestsByTheBytesOfTheirCaches) {
  const nlohmann::json plan = plan_json(
      {"plan", "--memory", "256MiB", "--method", "full", "--method", "h2o:budget=128", "--tokens", "1024,2048,9999"});
  const std::size_t pool = plan["cache_bytes"];
  EXPECT_EQ(plan["memory_bytes"], std::size_t{256} << 20);
  EXPECT_EQ(pool + plan["weight_bytes"].get<std::size_t>() + plan["program_bytes"].get<std::size_t>() +
                plan["step_bytes"].get<std::size_t>(),
            std::size_t{256} << 20);
  for (const nlohmann::json& row : plan["methods"]) {
    for (const nlohmann::json& cell : row["requests"]) {
      if (row["method"] == "full" && cell["tokens"] == 9999) {
        EXPECT_FALSE(cell.contains("count")) << "longer than the trained context";
        continue;
      }
      const nlohmann::json terms =
          plan_json({"info", "--cache", "--method", row["method"], "--cache-type", "f16", "--tokens",
                     std::to_string(cell["tokens"].get<long long>())})["cache"]["footprint"];
      EXPECT_EQ(cell["bytes"], std::max(terms["reading"]["bytes"], terms["writing"]["bytes"])) << row;
      EXPECT_EQ(cell["count"], pool / cell["bytes"].get<std::size_t>());
    }
  }
  EXPECT_EQ(plan["methods"][1]["requests"][1]["count"], plan["methods"][1]["requests"][2]["count"]);
  EXPECT_GT(plan["methods"][1]["requests"][1]["count"], plan["methods"][0]["requests"][1]["count"]);
}

TEST_F(PlanTest, PrintsATable) {
  const Finished done = command({"plan", "--memory", "1GiB", "--tokens", "1024,9999"});
  EXPECT_EQ(done.code, 0) << done.err;
  for (const char* part : {"1.0 GiB of memory: ", "left for caches", "1,024", "9,999", "streaming:budget=1024",
                           "-: longer than the trained context of 2,048", "palimpsest serve --cache-memory 9"})
    EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
}

TEST_F(PlanTest, BadInputIsRefused) {
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    words.insert(words.begin(), "plan");
    const Finished done = command(words);
    EXPECT_EQ(done.code, 2);
    EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
  };
  refused({"--memory", "20MiB"}, "the weights take");
  refused({"--memory", "lots"}, "--memory 'lots' is no size");
  refused({"--tokens", "4,x"}, "--tokens 'x'");
  refused({"--tokens", ""}, "--tokens ''");
  refused({"--method", "h20"}, "h20");
  refused({"--portable"}, "--portable");
}

}  // namespace
}  // namespace palimpsest::testing
