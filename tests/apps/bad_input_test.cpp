// Every bad input ends in exit code 2 and one line that says what was wrong and what to do.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/apps/command.h"

namespace palimpsest::testing {
namespace {

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const auto at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

// After the tensor's name: the number of dimensions (u32), then each (u64).
std::string with_shape(std::string bytes, const std::string& tensor, char first, char second) {
  const auto at = bytes.find(tensor) + tensor.size() + 4;
  bytes[at] = first;
  bytes[at + 8] = second;
  return bytes;
}

class BadModelTest : public WithDefaultModel {
 protected:
  std::string good() const { return file_content(model_); }
  void refused(const std::string& name, const std::string& bytes, const std::string& part) {
    const std::string path = write_file(name, bytes);
    SCOPED_TRACE(name);
    expect_refused({"run", "-m", path}, part);
    expect_refused({"info", path}, part);
  }
};

TEST_F(BadModelTest, Truncated) {
  const std::string bytes = good();
  for (const std::size_t size : {3u, 20u, 2000u, 20000u, 1000000u})
    refused("cut" + std::to_string(size) + ".gguf", bytes.substr(0, size), "cut" + std::to_string(size) + ".gguf");
}

TEST_F(BadModelTest, ZeroLengthAndNotAModel) {
  refused("empty.gguf", "", "empty.gguf");
  refused("text.gguf", "Once upon a time there was no model in this file at all.", "GGUF");
  expect_refused({"run", "-m", "/no/such/model.gguf"}, "/no/such/model.gguf");
  expect_refused({"run", "-m", ::testing::TempDir()}, ::testing::TempDir());
}

TEST_F(BadModelTest, UnknownArchitecture) {
  // Key, type (string), length, value: the length stays the same.
  refused("arch.gguf", replaced(good(), std::string("llama", 5), "lxama"), "");
}

TEST_F(BadModelTest, MissingTensor) {
  refused("missing.gguf", replaced(good(), "blk.2.attn_q.weight", "blk.2.attn_x.weight"), "blk.2.attn_");
}

TEST_F(BadModelTest, TensorOfTheWrongShape) {
  refused("shape.gguf", with_shape(good(), "blk.1.attn_q.weight", 32, char(128)), "blk.1.attn_q.weight");
}

TEST_F(BadModelTest, FlippedBitsNeverCrash) {
  const std::string bytes = good();
  for (unsigned i = 0; i < 40; ++i) {  // in the metadata and the list of tensors
    std::string flipped = bytes;
    flipped[(i * 7919) % 13000] ^= static_cast<char>(1 << (i % 8));
    const Finished done = command({"run", "-n", "4", "-t", "1", "-m", write_file("flip.gguf", flipped)});
    EXPECT_TRUE(done.code == 0 || done.code == 2) << i << ' ' << done.code << ' ' << done.err;
    if (done.code == 2) {
      EXPECT_TRUE(done.err.starts_with("palimpsest: error: ")) << done.err;
    }
  }
}

TEST_F(BadModelTest, DamagedWeightsSaySo) {
  std::string bytes = good();
  for (std::size_t i = bytes.size() - 500000; i < bytes.size(); ++i) bytes[i] = static_cast<char>(0xFF);  // NaN
  expect_refused({"run", "-n", "4", "-t", "1", "--method", "full", "-m", write_file("nan.gguf", bytes)}, "damaged");
}

using BadInputTest = WithDefaultModel;

TEST_F(BadInputTest, Budgets) {
  expect_refused(on({"run", "--budget", "0"}), "budget");
  expect_refused(on({"run", "--budget", "4"}), "at least 6");
  expect_refused(on({"run", "--budget", "8", "--sinks", "8"}), "at least 11");
  expect_refused(on({"run", "--budget", "-1"}), "budget");
  expect_refused(on({"run", "--budget", "many"}), "budget");
  expect_refused(on({"run", "--budget", "1000000000"}), "smaller --budget");
  expect_refused(on({"run", "--budget", "99999999999999999999"}), "budget");
  expect_refused(on({"run", "--method", "full", "-n", "100000000000"}), "--budget");
  expect_refused(on({"run", "--method", "full:budget=100"}), "policy");
}

TEST_F(BadInputTest, Methods) {
  expect_refused(on({"run", "--method", "nosuch"}), "streaming");
  expect_refused(on({"run", "--method", "streaming:"}), "key=value");
  expect_refused(on({"run", "--method", "streaming:budget"}), "budget");
  expect_refused(on({"run", "--method", "streaming:size=4"}), "size");
  expect_refused(on({"run", "--method", "streaming:every=-1"}), "every");
  expect_refused(on({"run", "--method", "h2o:positions=cache,rerotate=two-query"}), "rerotate");
  expect_refused(on({"run", "--method", "streaming:positions=original,rerotate=fused"}), "rerotate");
  expect_refused(on({"run", "--policy", "nosuch"}), "recent");
  expect_refused(on({"run", "--mechanism", "magic"}), "in-place");
  expect_refused(on({"run", "--positions", "sideways"}), "original");
  expect_refused(on({"run", "--cache-type", "q9"}), "f16");
  expect_refused(on({"run", "--cache-type-k", "q9"}),
                 "unknown cache type of keys 'q9': use f32, f16, bf16, q8_0, q4_0, q4, q3 or q2");
  expect_refused(on({"run", "-ctv", ""}), "cache type of values");
  expect_refused({"run", "-ctv"}, "--cache-type-v");
}

TEST_F(BadInputTest, Prompts) {
  expect_refused(on({"run", "-f", "/no/such/prompt.txt"}), "/no/such/prompt.txt");
  expect_refused(on({"run", "-f", ::testing::TempDir()}), ::testing::TempDir());
  expect_refused(on({"run", "-f", write_file("latin1.txt", "caf\xE9 au lait")}), "byte 3");
  expect_refused(on({"run"}), "byte 1", "a\xFF");
  expect_refused(on({"run", "-p", "a\xC3"}), "byte 1");
  expect_refused(on({"run", "-p", "a", "-f", "b"}), "excludes");
  const std::string secret = write_file("secret.txt", "x");
  chmod(secret.c_str(), 0);
  if (access(secret.c_str(), R_OK) != 0) expect_refused(on({"run", "-f", secret}), "secret.txt");  // root may read all
}

TEST_F(BadInputTest, Numbers) {
  expect_refused(on({"run", "-n", "-2"}), "-n");
  expect_refused(on({"run", "-n", "9999999999999999999999"}), "--n-predict");
  expect_refused(on({"run", "--prefill-chunk", "0"}), "--prefill-chunk");
  expect_refused(on({"run", "--chunk", "1000000000"}), "--prefill-chunk");
  expect_refused(on({"run", "--page-size", "17"}), "--page-size");
  expect_refused({"run", "-m", model_, "-t", "0"}, "--threads");
  expect_refused({"run", "-m", model_, "-t", "1000000"}, "--threads");
  expect_refused({"run", "-m", model_, "-t", "two"}, "--threads");
  expect_refused({"run", "-m", model_, "--threads-batch", "0"}, "--threads-batch");
  expect_refused(on({"run", "--temp", "1001"}), "--temp is 1001");
  expect_refused(on({"run", "--temp", "nan"}), "--temp");
  expect_refused(on({"run", "--top-p", "2"}), "--top-p is 2");
  expect_refused(on({"run", "--mirostat", "3"}), "--mirostat is 3");
  expect_refused(on({"run", "--samplers", "top_k;best"}), "best");
  expect_refused(on({"run", "--seed", "-2"}), "--seed");
  expect_refused(on({"run", "--stop", ""}), "stop string");
  expect_refused(on({"run", "--grammar", "root ::= \"a\"", "--ignore-eos"}), "--ignore-eos");
  expect_refused(on({"run", "--device", "abacus"}), "abacus");
}

// Earlier flag names are aliases; errors name the present one.
TEST(Flags, EarlierNamesAreAliases) {
  struct Alias {
    Words command;
    const char *name, *earlier;
  };
  for (const auto& [words, name, earlier] : {Alias{{"run"}, "--n-predict", "--tokens"},
                                             {{"chat"}, "--n-predict", "--tokens"},
                                             {{"run"}, "--prefill-chunk", "--chunk"},
                                             {{"serve"}, "--prefill-chunk", "--chunk"},
                                             {{"bench", "decode"}, "--prefill-chunk", "--chunk"},
                                             {{"serve"}, "--max-num-seqs", "--max-sequences"},
                                             {{"bench", "serve"}, "--max-num-seqs", "--max-sequences"},
                                             {{"serve"}, "--default-max-tokens", "--chat-tokens"},
                                             {{"serve"}, "--shutdown-timeout", "--grace"}})
    for (const char* spelled : {name, earlier}) {
      Words all = words;
      all.insert(all.end(), {spelled, "many"});
      expect_refused(all, name);
    }
  expect_refused({"eval", "kept", "--bins", "many"}, "palimpsest eval retention --help");
  expect_refused({"eval", "retention", "--bins", "many"}, "palimpsest eval retention --help");
}

TEST_F(BadInputTest, CommandLines) {
  expect_refused({"fly"}, "--help");
  expect_refused({"run", "--nosuch"}, "palimpsest run --help");
  expect_refused({"run", "-n"}, "palimpsest run --help");
  expect_refused({"run", "--synthetic", "llama-3.2-1b"}, "vocabulary");
  expect_refused({"info", "--synthetic", "nosuch"}, "nosuch");
  expect_refused({"info", "--budget", "0", model_}, "budget");
  expect_refused({"info", "--cache", "--budget", "4", model_}, "at least 5");
  expect_refused({"info", "--cache", "--method", "nosuch", model_}, "nosuch");
  expect_refused({"info", "--cache", "--cache-type", "f12", model_}, "f12");
  expect_refused({"info", "--cache", "--page-size", "20", model_}, "multiple of 16");
  expect_refused({"info", "--cache", "--batch", "0", model_}, "--batch 0");
  expect_refused({"info", "--cache", "--tokens", "0", model_}, "--tokens 0");
  expect_refused({"info", "--cache", "--tokens", "many", model_}, "--tokens");
  expect_refused({"info", "--cache", "--portable", model_}, "--portable");
  expect_refused(on({"run", "--lookup", "--draft-max", "0"}), "--draft-max 0");
  expect_refused(on({"run", "--lookup", "--draft-max", "64"}), "--draft-max 64");
  expect_refused(on({"run", "--lookup", "--draft-min", "9"}), "--draft-min 9");
  expect_refused(on({"run", "-md", "nosuch.gguf"}), "nosuch.gguf");
  expect_refused(on({"run", "-md", model_, "--draft-p-min", "2"}), "--draft-p-min 2");
  expect_refused(on({"run", "-md", model_, "--draft-method", "nosuch"}), "nosuch");
  expect_refused(on({"run", "-md", model_, "--lookup"}), "--lookup");
  expect_refused(on({"run", "--lookup", "--portable", "--method", "h2o:every=16"}), "on devices");
  expect_refused(on({"run", "--lookup", "--method", "tova"}), "every=9");
  expect_refused({"bench", "decode", "--synthetic", "tiny-llama", "--draft-max", "0,x"}, "--draft-max");
  expect_refused({"bench", "decode", "--synthetic", "tiny-llama", "--draft-max", "2", "--draft-accept", "1.5"}, "1.5");
  expect_refused({"bench", "decode", "--synthetic", "tiny-llama", "--draft-max", "2", "--batch", "2"}, "batch of 2");
  expect_refused(on({"chat", "--chat-template", "nosuch"}), "chatml");
}

// A default method that each request would be refused with.
TEST_F(BadInputTest, AServerRefusesAMethodThatNoRequestCanHave) {
  for (const auto& [method, sentence] : {std::pair("h2o:recall=2", "recall is for one sequence"),
                                         {"h2o:lossless=true", "lossless=true is for one sequence"},
                                         {"window-recompute:budget=64", "cannot share steps"}}) {
    expect_refused(on({"serve", "--port", "0", "--method", method}), sentence);
    expect_refused({"serve", "--port", "0", "--models-dir", ::testing::TempDir(), "--method", method}, sentence);
  }
}

// The nearest name, and habits of other programs.
TEST_F(BadInputTest, WhatWasProbablyMeant) {
  expect_refused({"rnu"}, "unknown command 'rnu'; did you mean 'run'?");
  expect_refused({"eval", "neddle"}, "unknown command 'neddle'; did you mean 'needle'?");
  expect_refused({"run", "--bugdet", "64"}, "unknown flag '--bugdet'; did you mean '--budget'?");
  expect_refused({"serve", "--prot=1"}, "unknown flag '--prot'; did you mean '--port'?");
  expect_refused({"eval", "needle", "--dephts", "3"}, "unknown flag '--dephts'; did you mean '--depths'?");
  expect_refused({"run", "--schedule", "step"},
                 "'--schedule' is an option of the method: write --method auto:schedule=");
  expect_refused({"run", "--method", "h20"}, "unknown method 'h20'; did you mean 'h2o'?");
  expect_refused({"run", "--method", "h2o:bugdet=64"}, "unknown method option 'bugdet'; did you mean 'budget'?");
  expect_refused({"run", "--policy", "keydif"}, "unknown policy 'keydif'; did you mean 'keydiff'?");
  expect_refused({"-hf", "a/b"}, "a command is missing: write `palimpsest chat -hf a/b`");
  expect_refused({"run", "-ngl", "99"}, "--device");
  expect_refused({"run", "-cnv"}, "`palimpsest chat` is a conversation");
  expect_refused({"run", "--mlock"}, "leave the flag out");
  expect_refused({"run", "Once upon a time"}, "is not a model: a prompt without a model is given with -p");
  expect_refused(on({"run", "a.gguf", "text"}), "two models");
  expect_refused(on({"run", "text", "-p", "text"}), "two prompts");
  expect_refused(on({"chat", "a.gguf"}), "--model");
}

TEST_F(BadInputTest, AChatWithAModelThatHasNoTemplate) {
  const auto path = stories260k();
  if (!path) GTEST_SKIP() << kNeedsStories260K;
  expect_refused({"chat", "-m", *path, "-t", "1"}, "--chat-template");
}

// A copy of the program in its own folder, without a model beside it.
TEST(NoModel, SaysHowToGetOne) {
  const auto alone = std::filesystem::path(::testing::TempDir()) / fmt::format("alone-{}", ::getpid()) / "bin";
  std::filesystem::create_directories(alone);
  std::filesystem::copy_file(command_path(), alone / "palimpsest");
  const Finished done =
      run_program((alone / "palimpsest").string(), {"run", "-n", "1", "-t", "1"}, {}, {{"PALIMPSEST_MODEL", ""}});
  std::filesystem::remove_all(alone.parent_path());
  EXPECT_EQ(done.code, 2);
  EXPECT_NE(done.err.find("PALIMPSEST_MODEL"), std::string::npos) << done.err;
}

}  // namespace
}  // namespace palimpsest::testing
