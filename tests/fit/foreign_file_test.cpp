// Files of torch.save() and safetensors: their tensors, and that nothing in them is executed or believed.
#include "palimpsest/fit/foreign_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdio>

#include "tests/support/error_message.h"
#include "tests/support/torch_file.h"

namespace palimpsest::testing {
namespace {

using P = TestPickle;

ForeignFile read(const FileBytes& bytes) {
  return read_foreign(bytes, "a.pt");
}
std::string fault_of(const FileBytes& bytes) {
  return error_message([&] { read(bytes); });
}

TEST(ForeignFile, TensorsAndTextsOfDictionaries) {
  const std::string pickle =
      P::dict(P::text("a") + P::dict(P::text("b") + P::tensor("0", 3) + P::text("c") + P::text("word")) +
              P::text("list") + "](K\x01" + "K\x02" + "e" + P::text("half") + P::tensor("1", 2, "HalfStorage") +
              P::text("counts") + P::tensor("2", 2, "LongStorage"));
  const std::uint32_t halves = 0x3c00 | 0xc400u << 16;  // 1, -4
  const ForeignFile file =
      read(torch_file(pickle, {{"0", {1, 2, 3}}, {"1", {std::bit_cast<float>(halves)}}, {"2", {0, 0, 0, 0}}}));
  EXPECT_EQ(file.tensors.at("a.b").values, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(file.tensors.at("a.b").shape, (std::vector<std::int64_t>{3}));
  EXPECT_EQ(file.tensors.at("half").values, (std::vector<float>{1, -4}));
  EXPECT_EQ(file.texts, (std::map<std::string, std::string>{{"a.c", "word"}}));
  EXPECT_TRUE(file.tensors.at("counts").values.empty()) << "whole numbers are no weights";
}

// Of a view: rows of a transposed 2 x 3.
TEST(ForeignFile, StridesAreFollowed) {
  const auto view = [](std::int32_t offset, std::int32_t stride) {
    return P::dict(P::text("t") + P::global("torch._utils", "_rebuild_tensor_v2") + "((" + P::text("storage") +
                   P::global("torch", "FloatStorage") + P::text("0") + P::text("cpu") + P::number(6) + "tQ" +
                   P::number(offset) + P::number(3) + P::number(2) + "\x86" + P::number(1) + P::number(stride) +
                   "\x86" + "\x89)tR");
  };
  const std::map<std::string, std::vector<float>> data = {{"0", {0, 1, 2, 3, 4, 5}}};
  EXPECT_EQ(read(torch_file(view(0, 3), data)).tensors.at("t").values, (std::vector<float>{0, 3, 1, 4, 2, 5}));
  EXPECT_NE(fault_of(torch_file(view(1, 3), data)).find("is damaged: tensor t"), std::string::npos);
  EXPECT_NE(fault_of(torch_file(view(0, 1 << 30), data)).find("is damaged: tensor t"), std::string::npos);
}

// What Python would run is a name and its arguments here.
TEST(ForeignFile, CallsAreNotExecuted) {
  const std::string path = ::testing::TempDir() + "palimpsest-pickle-ran";
  const std::string call = P::global("os", "system") + "(" + P::text("touch " + path) + "tR";
  const ForeignFile file =
      read(torch_file(P::dict(P::text("t") + P::tensor("0", 1) + P::text("x") + call), {{"0", {7}}}));
  EXPECT_EQ(file.tensors.size(), 1U);
  EXPECT_EQ(file.tensors.at("t").values, std::vector<float>{7});
  FILE* const ran = std::fopen(path.c_str(), "r");
  EXPECT_EQ(ran, nullptr);
  if (ran != nullptr) std::fclose(ran);
}

TEST(ForeignFile, DamagedFilesAreNamed) {
  const std::string good = P::dict(P::text("t") + P::tensor("0", 2));
  const std::map<std::string, std::vector<float>> data = {{"0", {1, 2}}};
  const auto with = [&](const std::string& pickle) { return fault_of(torch_file(pickle, data)); };
  EXPECT_EQ(with(good), "");
  EXPECT_NE(with(good.substr(0, good.size() - 20)).find("pickle"), std::string::npos);
  EXPECT_NE(with("t").find("makes no sense"), std::string::npos) << "a tuple without a mark";
  EXPECT_NE(with("h\x07").find("makes no sense"), std::string::npos) << "a memory that was not written";
  EXPECT_NE(with("\xff").find("opcode 0xff"), std::string::npos);
  EXPECT_NE(with(P::dict(P::text("t") + P::tensor("9", 2))).find("tensor t"), std::string::npos);
  EXPECT_NE(with(P::dict(P::text("t") + P::tensor("0", 3))).find("tensor t"), std::string::npos);
  EXPECT_NE(with(P::dict(P::text("t") + P::tensor("0", -1))).find("tensor t"), std::string::npos);
  // A dictionary that holds itself, and dictionaries that double at each level.
  EXPECT_NE(with("}q\x01" + P::text("x") + "h\x01s").find("inside more than"), std::string::npos);
  std::string doubled = std::string("}q") + '\0';
  for (int i = 0; i < 7; ++i) {
    std::string items;
    for (char key = 'a'; key < 'z'; ++key) items += P::text(std::string(1, key)) + "h" + static_cast<char>(i);
    doubled += P::dict(items) + "q" + static_cast<char>(i + 1);
  }
  EXPECT_NE(with(doubled).find("more than 1048576 values"), std::string::npos);
  FileBytes cut = torch_file(good, data);
  cut.resize(cut.size() - 30);
  EXPECT_NE(fault_of(cut).find("no list of its files"), std::string::npos);
  FileBytes compressed = torch_file(good, data);
  compressed[compressed.size() - 22 - 3 * 46 - 56 + 10] = std::byte{8};
  EXPECT_NE(fault_of(compressed), "");
  TestZip other;
  other.add("a.txt", "text");
  EXPECT_NE(fault_of(bytes_of_text(other.whole())).find("without data.pkl"), std::string::npos);
}

TEST(ForeignFile, Safetensors) {
  const std::string header = R"({"__metadata__":{"of":"tiny"},"w":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  const ForeignFile file = read(safetensors_file(header, {5, 6}));
  EXPECT_EQ(file.tensors.size(), 1U);
  EXPECT_EQ(file.tensors.at("w").values, (std::vector<float>{5, 6}));
  EXPECT_EQ(file.tensors.at("w").shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(file.texts.at("of"), "tiny");
  for (const char* bad : {R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,12]}})",
                          R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})",
                          R"({"w":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})",
                          R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                          R"({"w":{"shape":[2],"data_offsets":[0,8]}})", R"({"w":[1]})"})
    EXPECT_NE(fault_of(safetensors_file(bad, {5, 6})).find("is damaged: tensor w"), std::string::npos) << bad;
  EXPECT_NE(fault_of(safetensors_file("{\"w\"", {})).find("no JSON object"), std::string::npos);
  EXPECT_NE(fault_of(bytes_of_text("GGUF and more of it")).find("neither"), std::string::npos);
  EXPECT_NE(fault_of({}).find("neither"), std::string::npos);
}

}  // namespace
}  // namespace palimpsest::testing
