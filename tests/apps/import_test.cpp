// palimpsest import: a published calibration becomes a file that a method reads; nothing is replaced.
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

class ImportTest : public WithDefaultModel {};

TEST_F(ImportTest, HeadBudgetsAreUsedByASplit) {
  namespace fs = std::filesystem;
  std::string json = "{";
  for (int layer = 0; layer < 6; ++layer)
    for (int head = 0; head < 2; ++head)
      json += (json.size() == 1 ? "\"L" : ", \"L") + std::to_string(layer) + "H" + std::to_string(head) +
              "\": " + (layer < 3 ? "0.1" : "0.05");
  const std::string budgets = write_file("import-budgets.json", json + "}");
  const fs::path folder = own_file("import");
  fs::create_directory(folder);
  const Finished done = command({"import", budgets, "-m", model_, "--folder", folder.string(), "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto answer = nlohmann::json::parse(done.out);
  const std::string file = answer["file"];
  EXPECT_TRUE(file.ends_with(".profile")) << file;
  EXPECT_EQ(answer["use"], "split=" + file);
  const Finished used = command({"run", "-m", model_, "-p", "One day", "-n", "80", "--ignore-eos", "--method",
                                 "keydiff:budget=40,sinks=4,recent=8,split=" + file});
  EXPECT_EQ(used.code, 0) << used.err;
  expect_refused({"import", budgets, "-m", model_, "--folder", folder.string()}, "is there already");
  fs::remove_all(folder);
  expect_refused({"import", budgets, "-m", model_, "--folder", folder.string()}, "there is no such folder");
}

TEST_F(ImportTest, WhatIsNoCalibrationIsRefused) {
  expect_refused({"import", "/no/such/file.pt", "-m", model_}, "/no/such/file.pt");
  expect_refused({"import", write_file("import-text.pt", "a text"), "-m", model_}, "is none of these");
  expect_refused(
      {"import", write_file("import-zip.pt", "PK\x03\x04 and no more of it, nor a list of files"), "-m", model_},
      "is damaged");
  expect_refused({"import", write_file("import-one.json", "{\"L0H0\": 1}"), "-m", model_},
                 "has no budget of head L0H1");
}

}  // namespace
}  // namespace palimpsest::testing
