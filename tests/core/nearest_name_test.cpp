#include "palimpsest/core/nearest_name.h"

#include <gtest/gtest.h>

#include <vector>

namespace palimpsest {
namespace {

TEST(Nearest, IsWhatWasMeantOrNothing) {
  const std::vector<std::string> names = {"smollm2", "gemma3-270m", "gemma3-1b", "qwen2.5-0.5b"};
  for (const auto& [given, meant] : {std::pair("smolm2", "smollm2"),
                                     {"smol", "smollm2"},
                                     {"SMOLLM", "smollm2"},
                                     {"gema3-270m", "gemma3-270m"},
                                     {"gemma-1b", "gemma3-1b"},
                                     {"sm0llm2", "smollm2"},
                                     {"somllm2", "smollm2"},
                                     {"qwen2.5", "qwen2.5-0.5b"}})
    EXPECT_EQ(nearest_name(given, names), meant) << given;
  const std::vector<std::string> short_names = {"q4", "f16"};
  for (const char* given : {"x", "q", ""}) EXPECT_FALSE(nearest_name(given, short_names)) << given;
  for (const char* given : {"mistral-7b", "x", "", "phi"}) EXPECT_FALSE(nearest_name(given, names)) << given;
  EXPECT_EQ(did_you_mean("smolm2", names), "; did you mean 'smollm2'?");
  EXPECT_EQ(did_you_mean("mistral-7b", names), "");
}

}  // namespace
}  // namespace palimpsest
