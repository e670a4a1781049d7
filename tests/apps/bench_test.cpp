// palimpsest bench.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

TEST(Bench, DecodeRowsHaveTheirFields) {
  const Finished done =
      command({"bench", "decode", "--synthetic", "tiny", "--depth", "0,500", "--method", "full", "--method",
               "streaming:budget=64", "--tokens", "8", "--reps", "2", "-t", "1", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const json rows = json::parse(done.out);
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["test"], "decode");
    EXPECT_EQ(row["threads"], 1);
    EXPECT_EQ(row["cache_type"], "f16");
    EXPECT_EQ(row["tokens"], 8);
    EXPECT_EQ(row["rounds"], 2);
    EXPECT_EQ(row["fill"], row["depth"] == 0 ? "none" : "random");
    ASSERT_EQ(row["samples"].size(), 2u);
    const double a = row["samples"][0], b = row["samples"][1];
    EXPECT_DOUBLE_EQ(row["tokens_per_second"]["median"].get<double>(), (a + b) / 2);
    EXPECT_DOUBLE_EQ(row["tokens_per_second"]["least"].get<double>(), std::min(a, b));
    EXPECT_GT(row["limit_tokens_per_second"], 0);
    EXPECT_GT(row["weight_bytes"], 1000000);
    EXPECT_GE(row["ms_p99"], row["ms_p50"]);
  }
  EXPECT_EQ(rows[1]["depth"], 500);
  EXPECT_EQ(rows[1]["evicted"], 0);
  EXPECT_EQ(rows[3]["name"], "streaming:budget=64");
  EXPECT_EQ(rows[3]["evicted"], 8);
  EXPECT_LT(rows[3]["cache_bytes"], rows[1]["cache_bytes"]);
}

TEST(Bench, PrefillAndTheTable) {
  const Finished rows =
      command({"bench", "prefill", "--synthetic", "tiny", "--tokens", "32", "--reps", "1", "-t", "1", "--json"});
  ASSERT_EQ(rows.code, 0) << rows.err;
  EXPECT_EQ(json::parse(rows.out)[0]["test"], "prefill");
  const Finished table = command({"bench", "decode", "--synthetic", "tiny", "--tokens", "4", "--reps", "1", "-t", "1"});
  EXPECT_NE(table.out.find("tokens/s"), std::string::npos);
  EXPECT_NE(table.out.find("GB/s"), std::string::npos);
}

TEST(Bench, RefusesNonsense) {
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--depth", "-1"}, "--depth");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--reps", "0"}, "--reps");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--fill", "sand"}, "--fill");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--method", "nothing"}, "nothing");
  expect_refused({"bench", "make-model", "--synthetic", "llama-9", "-o", "x.gguf"}, "llama-9");
  expect_refused({"bench", "make-model", "--synthetic", "tiny", "-o", "/nowhere/at/all.gguf"}, "/nowhere/at/all.gguf");
}

}  // namespace
}  // namespace palimpsest::testing
