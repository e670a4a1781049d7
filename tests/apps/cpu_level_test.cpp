// PALIMPSEST_SIMD limits the program's kernels and ggml's.
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

Finished at_level(const std::string& level, const Words& words) {
  return run_program(command_path(), words, {}, {{"PALIMPSEST_MODEL", ""}, {"PALIMPSEST_SIMD", level}});
}

nlohmann::json cpu_of(const std::string& level) {
  for (const auto& device : nlohmann::json::parse(at_level(level, {"info", "--devices", "--json"}).out))
    if (device.contains("kernels")) return device;
  return {};
}

std::string kernels_of(const std::string& level) {
  return cpu_of(level)["kernels"];
}

TEST(CpuLevel, LimitsBothKernels) {
  const std::string best = kernels_of("");
  if (best.starts_with("EMU128") || best.starts_with("NEON") || best.find(".so") == std::string::npos)
    GTEST_SKIP() << "needs an x86 CPU and a ggml whose CPU backends are plug-ins, not " << best;
  EXPECT_EQ(kernels_of("SSE4"), "SSE4, libggml-cpu-sse42.so");
  if (at_level("AVX2", {"--version"}).code == 0) {
    EXPECT_EQ(kernels_of("AVX2"), "AVX2, libggml-cpu-haswell.so");
  }
  if (at_level("AVX2_VNNI", {"--version"}).code == 0) {
    EXPECT_EQ(kernels_of("AVX2_VNNI"), "AVX2_VNNI, libggml-cpu-alderlake.so");
  }
  EXPECT_EQ(kernels_of(""), best);
}

TEST(CpuLevel, DecidesTheProducts) {
  if (at_level("AVX2", {"--version"}).code != 0) GTEST_SKIP() << "needs AVX2";
  EXPECT_TRUE(cpu_of("SSE4")["products"].empty());
  const auto products = cpu_of("AVX2")["products"];
  EXPECT_EQ(products["q4_0"], "pairs of 8-bit products");
  EXPECT_EQ(products["bf16"], "f32 multiply-adds");
  EXPECT_FALSE(products.contains("tq2_0"));
  const std::string text = at_level("SSE4", {"info", "--devices"}).out;
  EXPECT_NE(text.find("products of all types: ggml's"), std::string::npos) << text;
}

TEST(CpuLevel, IsOneOfTheCpus) {
  const Finished done = at_level("AVX9", {"info", "--devices"});
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("PALIMPSEST_SIMD=AVX9: this CPU has "), std::string::npos) << done.err;
}

}  // namespace
}  // namespace palimpsest::testing
