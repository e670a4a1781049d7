// Names of models and files, addresses, and which files of a repository are meant.
#include "palimpsest/hub/names.h"
#include "palimpsest/core/letter_case.h"

#include <gtest/gtest.h>

#include "palimpsest/core/error.h"
#include "palimpsest/hub/catalogue.h"
#include "palimpsest/hub/hub_files.h"
#include "palimpsest/hub/url.h"

namespace palimpsest::testing {
namespace {

TEST(HubNames, AreReadWithAndWithoutATag) {
  const HubName name = parse_hub_name("hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M");
  EXPECT_EQ(name.user, "ggml-org");
  EXPECT_EQ(name.repo, "gemma-3-1b-it-GGUF");
  EXPECT_EQ(name.tag, "Q4_K_M");
  EXPECT_EQ(name.spelled(), "hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M");
  EXPECT_EQ(parse_hub_name("a/b").spelled(), "hf:a/b");
}

TEST(HubNames, ThatAreNoneAreRefused) {
  for (const char* text : {"hf:", "hf:a", "hf:a/", "hf:/b", "hf:a/b/c", "hf:../b", "hf:a/..", "hf:a/b:", "hf:a/b:../c",
                           "hf:a/.b", "hf:a--b/c", "hf:a/b?c", "hf:a b/c", "hf:a/b:c/d", "hf:a\n/b"})
    EXPECT_THROW(parse_hub_name(text), Error) << text;
}

TEST(FileNames, OfOthersAreSafeOrRefused) {
  for (const char* name : {"a", "SmolLM2-135M-Instruct.Q4_1.gguf", "a+b_c-00001-of-00002.gguf"})
    EXPECT_TRUE(is_safe_file_name(name)) << name;
  for (const char* name : {"", ".", "..", ".hidden", "-rf", "a/b", "../a", "a\\b", "a b", "a\tb", "a\nb", "a:b",
                           "a\x1b[2J", "caf\xC3\xA9", "/etc/passwd"})
    EXPECT_FALSE(is_safe_file_name(name)) << name;
  EXPECT_FALSE(is_safe_file_name(std::string_view("a\0b", 3)));
  EXPECT_FALSE(is_safe_file_name(std::string(201, 'a')));
}

TEST(FileNames, TellTheQuantisation) {
  EXPECT_EQ(quant_in("SmolLM2-135M-Instruct.Q4_1.gguf"), "Q4_1");
  EXPECT_EQ(quant_in("qwen2.5-0.5b-instruct-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quant_in("x-IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(quant_in("x-UD-Q4_K_XL.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quant_in("UD-Q4_K_XL/x-UD-Q4_K_XL-00001-of-00002.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quant_in("x-BF16.gguf"), "BF16");
  EXPECT_EQ(quant_in("x-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(quant_in("model.gguf"), "");
  EXPECT_EQ(quant_in(std::string(100000, 'Q')), "");
}

TEST(FileNames, OfSplitModels) {
  const auto split = split_name("x-00002-of-00003.gguf");
  ASSERT_TRUE(split);
  EXPECT_EQ(split->stem, "x");
  EXPECT_EQ(split->number, 2);
  EXPECT_EQ(split->part(1), "x-00001-of-00003.gguf");
  for (const char* name : {"x.gguf", "x-00000-of-00003.gguf", "x-00004-of-00003.gguf", "x-1-of-3.gguf"})
    EXPECT_FALSE(split_name(name)) << name;
}

TEST(Catalogue, IsComplete) {
  EXPECT_NE(find_in_catalogue(kFirstModel), nullptr);
  EXPECT_EQ(find_in_catalogue("SmolLM2"), find_in_catalogue("smollm2"));
  EXPECT_EQ(find_in_catalogue("nothing"), nullptr);
  for (const CatalogueEntry& entry : catalogue()) {
    SCOPED_TRACE(entry.name);
    EXPECT_TRUE(is_safe_file_name(entry.name));
    EXPECT_EQ(lower_case(entry.name), entry.name);
    EXPECT_FALSE(entry.title.empty());
    EXPECT_FALSE(entry.licence.empty());
    EXPECT_TRUE(entry.licence_url.starts_with("https://"));
    EXPECT_NE(entry.wheels.empty(), entry.hub.empty());
    if (entry.wheels.empty()) {
      EXPECT_FALSE(parse_hub_name(entry.hub).tag.empty());
      continue;
    }
    EXPECT_TRUE(is_safe_file_name(entry.file));
    EXPECT_EQ(entry.sha256.size(), 64u);
    EXPECT_GT(entry.size, 0u);
  }
}

TEST(Urls, AreReadInParts) {
  const Url url = parse_url("HTTPS://us%40er:pa%3Ass@Example.org:8443/a/b%20c.gguf?x=1#y");
  EXPECT_EQ(url.origin(), "https://example.org:8443");
  EXPECT_EQ(url.user, "us@er");
  EXPECT_EQ(url.password, "pa:ss");
  EXPECT_EQ(url.path, "/a/b%20c.gguf?x=1");
  EXPECT_EQ(url.file_name(), "b c.gguf");
  EXPECT_EQ(url.shown(), "https://example.org:8443/a/b%20c.gguf");
  EXPECT_EQ(parse_url("http://h").path, "/");
  EXPECT_EQ(parse_url("http://h?q").path, "/?q");
  EXPECT_EQ(parse_url("http://[::1]:80/x").host, "[::1]");
  EXPECT_EQ(parse_url("http://[::1]:81/x").port, 81);
  for (const char* text : {"", "h", "ftp://h", "http://", "http://h:0", "http://h:x", "http://h:99999", "http://h/a b",
                           "http://h/a\r\nX: y", "http://:80/"})
    EXPECT_THROW(parse_url(text), Error) << text;
}

TEST(Urls, AreJoined) {
  const Url base = parse_url("https://h:444/simple/x/?q");
  EXPECT_EQ(join_url(base, "../../files/a.whl#sha256=1").path, "/files/a.whl");
  EXPECT_EQ(join_url(base, "../../../../a").path, "/a");
  EXPECT_EQ(join_url(base, "/a?b=/../c").path, "/a?b=/../c");
  EXPECT_EQ(join_url(base, "y").path, "/simple/x/y");
  EXPECT_EQ(join_url(base, "//other/y").origin(), "https://other:443");
  EXPECT_EQ(join_url(base, "http://other/y").origin(), "http://other:80");
  EXPECT_EQ(join_url(base, "../").path, "/simple/");
  EXPECT_THROW(join_url(base, "/a\r\nX: y"), Error);
}

std::vector<HubFile> repository(const std::vector<std::string>& paths) {
  std::vector<HubFile> out;
  for (const std::string& path : paths) out.push_back({path, 1, {}});
  return out;
}

std::string chosen(const std::vector<std::string>& paths, std::string_view tag) {
  std::string out;
  for (const HubFile& file : choose_files(repository(paths), tag)) out += (out.empty() ? "" : " ") + file.path;
  return out;
}

TEST(HubFiles, AreChosenByQuantisation) {
  const std::vector<std::string> files = {"README.md",   "mmproj-x-f16.gguf", "x-IQ4_XS.gguf", "x-Q4_K_M.gguf",
                                          "x-Q8_0.gguf", "x-UD-Q4_K_M.gguf",  "x.imatrix.gguf"};
  EXPECT_EQ(chosen(files, ""), "x-Q4_K_M.gguf");
  EXPECT_EQ(chosen(files, "q8_0"), "x-Q8_0.gguf");
  EXPECT_EQ(chosen(files, "UD-Q4_K_M"), "x-UD-Q4_K_M.gguf");
  EXPECT_EQ(chosen(files, "x-IQ4_XS.gguf"), "x-IQ4_XS.gguf");
  EXPECT_EQ(chosen(files, "Q4"), "");
  EXPECT_EQ(chosen(files, "f16"), "");  // a projector is not a model
  EXPECT_EQ(chosen({"x-Q8_0.gguf", "x-F16.gguf"}, ""), "x-Q8_0.gguf");
  EXPECT_EQ(chosen({"b.gguf", "a.gguf"}, ""), "a.gguf");
  EXPECT_EQ(chosen({"model-q4-it.gguf"}, "Q4"), "model-q4-it.gguf");
  EXPECT_EQ(chosen({"model.safetensors"}, ""), "");
}

TEST(HubFiles, OfSplitModelsAreAllOrNone) {
  EXPECT_EQ(chosen({"q8/x-Q8_0-00002-of-00002.gguf", "q8/x-Q8_0-00001-of-00002.gguf"}, "Q8_0"),
            "q8/x-Q8_0-00001-of-00002.gguf q8/x-Q8_0-00002-of-00002.gguf");
  EXPECT_EQ(chosen({"x-Q8_0-00001-of-00003.gguf", "x-Q8_0-00003-of-00003.gguf"}, "Q8_0"), "");
}

TEST(HubFiles, WithDangerousNamesAreNoModels) {
  for (const char* path : {"../../x-Q4_K_M.gguf/..", "a/..-Q4_K_M.gguf", "a/ x-Q4_K_M.gguf", "a/x\n-Q4_K_M.gguf"})
    EXPECT_EQ(chosen({path}, "Q4_K_M"), "") << path;
}

}  // namespace
}  // namespace palimpsest::testing
