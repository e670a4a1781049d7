// palimpsest bench methods.
#include <fstream>
#include <sstream>

#include "palimpsest/eval/results_file.h"
#include "tests/apps/command.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

class BenchMethods : public WithDefaultModel {
 protected:
  void SetUp() override {
    WithDefaultModel::SetUp();
    folder_ = own_file("methods");
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  Words words(const std::string& methods, const std::string& tasks) const {
    return {"bench",     "methods", "-m",       model_, "-o",        folder_, "--length", "256",
            "--samples", "1",       "--shares", "1/4",  "--methods", methods, "--tasks",  tasks};
  }
  std::string report() const {
    std::ostringstream out;
    out << std::ifstream(folder_ + "/report.md").rdbuf();
    return out.str();
  }
  std::string folder_;
};

TEST_F(BenchMethods, MeasuresAtEqualBytesAndResumes) {
  const Finished first = command(words("h2o;lagkv:recent=16", "passkey;text"));
  ASSERT_EQ(first.code, 0) << first.err;
  const auto lines = read_results(folder_ + "/results.jsonl");
  std::size_t bytes_of_keydiff = 0, results = 0;
  for (const auto& line : lines)
    if (line.contains("seen") && line["command"].get<std::string>().find("keydiff") != std::string::npos)
      bytes_of_keydiff = line["result"]["runs"][0]["cache_bytes"];
  ASSERT_GT(bytes_of_keydiff, 0u);
  for (const auto& line : lines) {
    if (!line.contains("suite")) continue;
    ++results;
    const auto& suite = line["suite"];
    if (suite["task"] == "text" && suite["method"] != "full") {
      EXPECT_LE(suite["cache_bytes"], bytes_of_keydiff * 1.01) << suite;
      EXPECT_GE(suite["cache_bytes"], bytes_of_keydiff * 0.9) << suite;
    }
  }
  EXPECT_GE(results, 4u);
  const std::string before = report();
  EXPECT_NE(before.find("| h2o |"), std::string::npos) << before;
  EXPECT_TRUE(fs::exists(folder_ + "/report.html"));

  const Finished again = command(words("h2o;lagkv:recent=16", "passkey;text"));
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_results(folder_ + "/results.jsonl").size(), lines.size()) << "nothing is measured twice";
  EXPECT_EQ(report(), before);
}

TEST_F(BenchMethods, SaysWhatItCannotDo) {
  EXPECT_NE(command(words("h2o", "passky")).err.find("did you mean 'passkey'"), std::string::npos);
  Words bad = words("h2o", "text");
  bad.insert(bad.end(), {"--shares", "0.25"});
  EXPECT_NE(command(bad).err.find("1/4"), std::string::npos);
  const Finished missing = command(words("kvzap", "text"));
  EXPECT_EQ(missing.code, 0) << missing.err;
  EXPECT_NE(missing.out.find("Not measured at 1/4: kvzap"), std::string::npos) << missing.out;
}

TEST_F(BenchMethods, Lists) {
  const Finished list = command({"bench", "methods", "--list"});
  EXPECT_EQ(list.code, 0);
  for (const char* name : {"facts", "corrected", "keydiff, shares"})
    EXPECT_NE(list.out.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace palimpsest::testing
