// `palimpsest fit`: methods find its files beside the model, and other models refuse them; a killed fit goes on; bad
// input is refused.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "palimpsest/model/model.h"
#include "palimpsest/model/weights.h"
#include "tests/apps/command.h"
#include "tests/support/file_content.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

// A folder with a copy of the default model, without its files.
class FitTest : public ::testing::Test {
 protected:
  static std::string folder(const std::string& name) {
    const fs::path folder = own_file(name);
    fs::remove_all(folder);
    fs::create_directories(folder);
    fs::copy_file(default_model(), folder / "model.gguf");
    return folder.string();
  }
  static Words fit(const std::string& folder, Words more) {
    Words all = {"fit", "-m", folder + "/model.gguf", "-t", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string story(int sentences) {
    const std::string path = own_file("fit.txt");
    std::ofstream out(path);
    for (int i = 0; i < sentences; ++i)
      out << "Once upon a time there was a dog, and it was " << i << " years old. The dog had a ball. ";
    return path;
  }
};

constexpr const char* kFiles[] = {"kvzap", "profile", "duo", "centres", "scorer", "temporal"};

TEST_F(FitTest, MethodsFindTheFilesAndOtherModelsRefuseThem) {
  const std::string own = folder("fit-own");
  const Finished done = command(fit(own, {"-f", story(300), "--texts", "2", "--length", "768", "--contexts", "1"}));
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* each : kFiles) EXPECT_TRUE(fs::exists(own + "/model." + each)) << each;
  EXPECT_FALSE(fs::exists(own + "/model.fit"));
  for (const char* row : {"full cache", "auto, not fitted (keydiff)", "+ auto, fitted (keydiff)", "+ duo"})
    EXPECT_NE(done.out.find(row), std::string::npos) << done.out;

  const std::string methods[] = {"kvzap:budget=64,recent=16",
                                 "keydiff:budget=64,split=profile",
                                 "duo:budget=64",
                                 "triattention:budget=64,every=8",
                                 "learned:budget=64",
                                 "temporal:budget=64"};
  const auto run = [](const std::string& model, const std::string& method) {
    return Words{"run", "-m", model, "-t", "1", "-p", "Once", "-n", "80", "--ignore-eos", "--method", method};
  };
  for (const std::string& method : methods) EXPECT_EQ(command(run(own + "/model.gguf", method)).code, 0) << method;
  const Finished plan = command({"info", own + "/model.gguf", "--cache", "--json", "--method", "auto:budget=64"});
  EXPECT_NE(plan.out.find("split=profile"), std::string::npos) << plan.out;

  // Another model of the same shape: one weight is another.
  const std::string other = folder("fit-other");
  std::string bytes = file_content(own + "/model.gguf");
  const auto loaded = Model::load(default_model());
  const GgufTensor& tensor = loaded->weights().file.tensors().back();
  const auto at = bytes.find(std::string(reinterpret_cast<const char*>(tensor.data), 64));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 8] = static_cast<char>(bytes[at + 8] ^ 1);
  std::ofstream(other + "/model.gguf", std::ios::binary) << bytes;
  for (const char* each : kFiles) fs::copy_file(own + "/model." + each, other + "/model." + each);
  for (const std::string& method : methods) {
    expect_refused(run(other + "/model.gguf", method), "made for another model");
    expect_refused(run(other + "/model.gguf", method), "`palimpsest fit -m MODEL`");
  }
}

TEST_F(FitTest, QuickWritesTheSharesOfHeadsAlone) {
  const std::string own = folder("fit-quick");
  const Finished done = command(fit(own, {"--quick"}));
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find(own + "/model.profile"), std::string::npos) << done.out;
  for (const char* each : kFiles) EXPECT_EQ(fs::exists(own + "/model." + each), std::string(each) == "profile") << each;
  EXPECT_NE(file_content(own + "/model.profile").find("`palimpsest fit --quick`, 480 tokens"), std::string::npos);
  // Of another text, shorter: other shares.
  const std::string text = own_file("quick.txt");
  std::ofstream(text) << "A dog had a ball. The ball was red, and the dog was happy to have it.";
  const std::string before = file_content(own + "/model.profile");
  ASSERT_EQ(command(fit(own, {"--quick", "-f", text})).code, 0);
  EXPECT_NE(file_content(own + "/model.profile"), before);
  expect_refused(fit(own, {"--quick", "--length", "5"}), "give one of at least 12");
  expect_refused(fit(own, {"--quick", "--length", "1800"}), "exceed the trained context of 2048");
}

// Method auto with a budget, on a model that nothing was fitted to.
TEST_F(FitTest, AModelWithoutSharesGetsItsOwnOnce) {
  const std::string own = folder("fit-none") + "/model.gguf", profiles = own_file("cache") + "/palimpsest/profiles";
  fs::remove_all(profiles);
  const auto run = [&](const std::string& method) {
    return command(
        {"run", "-m", own, "-t", "1", "-p", "Once", "-n", "80", "--ignore-eos", "--seed", "1", "--method", method});
  };
  const std::string note = "shares of heads measured once for this model";
  for (const char* method : {"auto", "auto:budget=64,split=uniform", "tova:budget=64", "keydiff:budget=64"})
    EXPECT_EQ(run(method).err.find(note), std::string::npos) << method;
  EXPECT_FALSE(fs::exists(profiles));
  // `info` and `plan` measure nothing, and show what a run has.
  const auto sizes = [&] {
    std::string both;
    for (const Words& show : {Words{"info", "-m", own, "--cache", "--method", "auto:budget=64"},
                              Words{"plan", "-m", own, "--memory", "1GiB", "--method", "auto:budget=64", "--json"}}) {
      const Finished shown = command(show);
      EXPECT_EQ(shown.code, 0) << shown.err;
      both += shown.out;
    }
    return both;
  };
  const std::string uniform = sizes();
  EXPECT_FALSE(fs::exists(profiles));
  const Finished first = run("auto:budget=64"), second = run("auto:budget=64");
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find(note), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("split=profile"), std::string::npos) << first.err;
  EXPECT_EQ(second.err.find(note), std::string::npos) << second.err;
  EXPECT_EQ(first.out, second.out);
  const std::string shares = sizes();
  EXPECT_EQ(uniform.find("split=profile"), std::string::npos) << uniform;
  EXPECT_NE(shares.find("split=profile"), std::string::npos) << shares;
  EXPECT_NE(uniform, shares);
  EXPECT_EQ(run("keydiff:budget=64,split=profile").code, 0);
  EXPECT_FALSE(fs::exists(fs::path(own).replace_extension("profile")));

  // A cache folder that cannot be written: a note, and one share for all.
  fs::remove_all(profiles);
  std::ofstream(profiles) << "no folder";
  const Finished without = run("auto:budget=64");
  EXPECT_EQ(without.code, 0) << without.err;
  EXPECT_NE(without.err.find("one share of the budget for all heads: "), std::string::npos) << without.err;
  EXPECT_EQ(without.err.find("split=profile"), std::string::npos) << without.err;
  fs::remove(profiles);
}

TEST_F(FitTest, AKilledFitGoesOn) {
  const Words flags = {"--texts", "6", "--length", "768", "--table", "none"};
  const std::string whole = folder("fit-whole"), killed = folder("fit-killed");
  ASSERT_EQ(command(fit(whole, flags)).code, 0);
  {
    Subprocess program(command_path(), fit(killed, flags), {{"PALIMPSEST_MODEL", ""}});
    for (int i = 0; i < 6000 && !fs::exists(killed + "/model.fit"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    program.signal(SIGKILL);
    EXPECT_EQ(program.wait().code, 128 + SIGKILL);
  }
  EXPECT_FALSE(fs::exists(killed + "/model.kvzap"));
  const Finished rest = command(fit(killed, flags));
  ASSERT_EQ(rest.code, 0) << rest.err;
  EXPECT_NE(rest.err.find("goes on with " + killed + "/model.fit"), std::string::npos) << rest.err;
  for (const char* each : kFiles)
    EXPECT_EQ(file_content(whole + "/model." + each), file_content(killed + "/model." + each)) << each;
}

TEST_F(FitTest, AStateOfOtherOptionsIsNotUsed) {
  const std::string own = folder("fit-options");
  Subprocess program(command_path(), fit(own, {"--texts", "6", "--length", "768"}), {{"PALIMPSEST_MODEL", ""}});
  for (int i = 0; i < 6000 && !fs::exists(own + "/model.fit"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  program.signal(SIGINT);
  const Finished stopped = program.wait();
  EXPECT_EQ(stopped.code, 130);
  EXPECT_NE(stopped.err.find("stopped; the same command goes on"), std::string::npos) << stopped.err;
  const Finished other = command(fit(own, {"--texts", "1", "--length", "768", "--table", "none"}));
  EXPECT_EQ(other.code, 0);
  EXPECT_NE(other.err.find("was made from another text, or with other options"), std::string::npos) << other.err;
}

TEST_F(FitTest, BadInput) {
  const std::string own = folder("fit-bad");
  expect_refused(fit(own, {"-f", story(3)}), "give a longer text, or a smaller --length of at least 321");
  expect_refused(fit(own, {"--length", "200"}), "a text of 200 tokens is too short to fit to: give at least 321");
  expect_refused(fit(own, {"--length", "2000"}), "exceed the trained context of 2048: give at most 1536");
  expect_refused(fit(own, {"--folder", "/no/such"}), "--folder /no/such: there is no such folder");
  expect_refused(fit(own, {"--folder", "/proc/self/fd"}), "give a folder of your own with --folder");
  expect_refused(fit(own, {"-f", "/no/such.txt"}), "/no/such.txt");
  expect_refused({"fit"}, "give -m MODEL");
  expect_refused(fit(own, {"--lora", "x.gguf"}), "with an adapter it is another model");
  expect_refused(fit(own, {"--texts", "0"}), "--texts 0: give 1 to 4,096");
  expect_refused(fit(own, {"--table", "some"}), "--table");
  std::ofstream(own + "/model.fit") << "nonsense";
  expect_refused(fit(own, {}), "delete it and fit again");
}

}  // namespace
}  // namespace palimpsest::testing
