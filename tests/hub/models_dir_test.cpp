// Which files of a folder are models, and their names.
#include "palimpsest/hub/models_dir.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "palimpsest/hub/models.h"
#include "tests/support/own_file.h"

namespace palimpsest::testing {
namespace {

namespace fs = std::filesystem;

TEST(ModelsDir, NamesFilesAndFolders) {
  const fs::path folder = own_file("models-dir"), pulled = own_file("models-pulled");
  fs::remove_all(folder);
  fs::remove_all(pulled);
  ::setenv("PALIMPSEST_MODELS", pulled.c_str(), 1);
  const auto write = [&](const fs::path& path, const std::string& text = "x") {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  write(folder / "b.gguf", "12345");
  write(folder / "a.Q4_K_M.gguf");
  write(folder / "notes.txt");
  write(folder / "mmproj-a.gguf");
  write(folder / "large-00001-of-00002.gguf");
  write(folder / "large-00002-of-00002.gguf");
  write(folder / "vision/mmproj.gguf");
  write(folder / "vision/weights.gguf");
  write(folder / "parts/model-00002-of-00002.gguf");
  write(folder / "parts/model-00001-of-00002.gguf");
  write(folder / "empty/readme.md");
  write(folder / ".hidden/model.gguf");
  write(folder / "state-of-the-art.gguf");
  const auto record = [&](const fs::path& in, const std::string& name) {
    write(in / "file.gguf");
    write_record(
        in, {.name = name, .source = "", .licence = "", .files = {{.name = "file.gguf", .size = 1, .sha256 = ""}}});
  };
  record(pulled / "smollm2", "smollm2");
  record(pulled / "b", "b");  // the folder's comes first
  record(folder / "hf--user--repo--Q8_0", "hf:user/repo:Q8_0");
  std::vector<std::string> names, files;
  for (const ModelInFolder& model : models_in(folder)) {
    names.push_back(model.name);
    files.push_back(model.path.filename().string());
    EXPECT_EQ(model.bytes, model.name == "b" ? 5u : 1u) << model.name;
  }
  ::unsetenv("PALIMPSEST_MODELS");
  EXPECT_EQ(names, (std::vector<std::string>{"a.Q4_K_M", "b", "hf:user/repo:Q8_0", "large", "parts", "smollm2",
                                             "state-of-the-art", "vision"}));
  EXPECT_EQ(files, (std::vector<std::string>{"a.Q4_K_M.gguf", "b.gguf", "file.gguf", "large-00001-of-00002.gguf",
                                             "model-00001-of-00002.gguf", "file.gguf", "state-of-the-art.gguf",
                                             "weights.gguf"}));
  fs::remove_all(folder);
  fs::remove_all(pulled);
}

}  // namespace
}  // namespace palimpsest::testing
