// palimpsest bench.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

using nlohmann::json;

TEST(Bench, DecodeRowsHaveTheirFields) {
  const Finished done =
      command({"bench",    "decode",  "--synthetic", "tiny",     "--depth", "0,500",    "--page-size",
               "16",       "--chunk", "16",          "--method", "full",    "--method", "streaming:budget=64",
               "--tokens", "8",       "--reps",      "2",        "-t",      "1",        "--json"});
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
    EXPECT_DOUBLE_EQ(row["tokens_per_second"]["min"].get<double>(), std::min(a, b));
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

TEST(Bench, NamesTheTypesOfKeysAndOfValues) {
  const Finished rows = command(
      {"bench", "decode", "--synthetic", "tiny", "--tokens", "2", "--reps", "1", "-t", "1", "-ctk", "q8_0", "--json"});
  ASSERT_EQ(rows.code, 0) << rows.err;
  EXPECT_EQ(json::parse(rows.out)[0]["cache_type"], "q8_0/f16");
}

TEST(Bench, RefusesNonsense) {
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--depth", "-1"}, "--depth");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--reps", "0"}, "--reps");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--fill", "sand"}, "--fill");
  expect_refused({"bench", "decode", "--synthetic", "tiny", "--method", "nothing"}, "nothing");
  expect_refused({"bench", "make-model", "--synthetic", "llama-9", "-o", "x.gguf"}, "llama-9");
  expect_refused({"bench", "make-model", "--synthetic", "tiny", "-o", "/nowhere/at/all.gguf"}, "/nowhere/at/all.gguf");
}

TEST(Bench, ServeAnswersAllAndDrawsThem) {
  const std::string plot = own_file("serve.json");
  Words load = {"bench", "serve", "--synthetic", "tiny", "-t", "1", "--page-size", "16", "--prefill-chunk", "16"};
  load.insert(load.end(), {"--num-prompts", "5", "--random-input-len", "40", "--random-output-len", "12"});
  load.insert(load.end(), {"--method", "full"});
  const auto with = [&](const Words& more) {
    Words all = load;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Finished done = command(
      with({"--method", "streaming:budget=32", "--reps", "2", "--max-concurrency", "3", "--plot", plot, "--json"}));
  ASSERT_EQ(done.code, 0) << done.err;
  const json rows = json::parse(done.out);
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["completed"], 10);
    EXPECT_EQ(row["failed"], 0);
    EXPECT_EQ(row["prompt_tokens"], 10 * 40);
    EXPECT_EQ(row["output_tokens"], 10 * 12);
    EXPECT_EQ(row["output_tokens_per_second"]["samples"].size(), 2u);
    EXPECT_LE(row["ttft_ms"]["p50"], row["ttft_ms"]["p99"]);
    EXPECT_GT(row["tpot_ms"]["mean"], 0);
    EXPECT_GT(row["itl_ms"]["p99"], 0);
    EXPECT_GT(row["cache_bytes_peak"], 0);
    EXPECT_EQ(row["cache_bytes_after"], 0);
    EXPECT_GT(row["resident_bytes_peak"], 1 << 20);
  }
  EXPECT_EQ(rows[0]["evicted_tokens"], 0);
  EXPECT_EQ(rows[1]["evicted_tokens"], 10 * (40 + 11 - 32));
  EXPECT_LT(rows[1]["cache_bytes_peak"], rows[0]["cache_bytes_peak"]);
  EXPECT_EQ(json::parse(file_content(plot))["panels"].size(), 5u);
  std::filesystem::remove(plot);

  const Finished table = command(with({}));
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("TTFT, ms"), std::string::npos);
}

TEST(Bench, ServeReadsARecording) {
  const Words serve = {"bench", "serve", "--synthetic", "tiny", "--json", "--dataset", "-", "-t", "1"};
  const Finished done =
      command(serve, "{\"prompt\": [1, 2, 3], \"output_len\": 4}\n{\"input_len\": 9, \"output_len\": 2}\n");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(json::parse(done.out)[0]["prompt_tokens"], 12);
  EXPECT_EQ(json::parse(done.out)[0]["output_tokens"], 6);
  expect_refused(serve, "vocabulary", "{\"prompt\": \"words\"}\n");
  expect_refused(serve, "line 1", "words\n");
  expect_refused({"bench", "serve", "--synthetic", "tiny", "--dataset", "/nowhere.jsonl"}, "/nowhere.jsonl");
}

TEST(Bench, ServeReplaysATrace) {
  const std::string trace =
      "{\"block_size\": 16, \"requests\": [{\"in\": 40, \"out\": 4, \"hash_ids\": [1, 2]}, "
      "{\"in\": 64, \"out\": 4, \"hash_ids\": [1, 2, 3, 4], \"think_time\": 60}]}\n";
  Words serve = {"bench", "serve", "--synthetic", "tiny", "--prefix-cache-memory", "64", "--cache-memory", "128"};
  serve.insert(serve.end(), {"-t", "1", "--trace", "-", "--scale", "0.5", "--think-scale", "0"});
  const Finished table = command(serve, trace);
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("52 prompt tokens, 20 cached (38.5%), 32 read: 1.00 of the 32 that are new"),
            std::string::npos)
      << table.out;
  serve.push_back("--json");
  const json row = json::parse(command(serve, trace).out)[0];
  EXPECT_EQ(row["completed"], 2);
  EXPECT_EQ(row["output_tokens"], 4);
  EXPECT_EQ(row["cached_tokens"], 20);
  EXPECT_EQ(row["repeated_tokens"], 20);
  EXPECT_EQ(row["read_over_new"], 1);
  EXPECT_GT(row["kept_bytes_peak"], 0);
}

TEST(Bench, ServeRefusesNonsense) {
  const auto refused = [](Words more, const std::string& part) {
    more.insert(more.begin(), {"bench", "serve", "--synthetic", "tiny"});
    expect_refused(more, part);
  };
  refused({"--num-prompts", "0"}, "--num-prompts");
  refused({"--request-rate", "0"}, "--request-rate");
  refused({"--request-rate", "nan"}, "--request-rate");
  refused({"--max-concurrency", "-1"}, "--max-concurrency");
  refused({"--random-input-len", "0"}, "--random-input-len");
  refused({"--random-output-len", "0"}, "--random-output-len");
  refused({"--cache-memory", "-1"}, "--cache-memory");
  refused({"--max-num-seqs", "0"}, "sequences");
  refused({"--method", "nothing"}, "nothing");
  refused({"--plot", "/nowhere/at/all.json"}, "/nowhere/at/all.json");
  refused({"--api-key", "x"}, "--base-url");
  refused({"--scale", "0.5"}, "--trace");
  refused({"--trace", "-", "--num-prompts", "3"}, "--num-prompts");
  refused({"--trace", "-", "--scale", "0"}, "--scale");
  refused({"--trace", "-", "--think-scale", "-1"}, "--think-scale");
  refused({"--trace", "-"}, "no request");
  refused({"--cache-memory", "0.001"}, "MiB of cache");
  expect_refused({"bench", "serve", "--base-url", "127.0.0.1:80"}, "http://");
  expect_refused({"bench", "serve", "--base-url", "http://127.0.0.1:1"}, "does not answer");
  expect_refused({"bench", "serve", "--base-url", "http://127.0.0.1:1", "--chunk", "64"}, "--prefill-chunk");
}

}  // namespace
}  // namespace palimpsest::testing
