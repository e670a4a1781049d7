#include "tests/fuzz/gguf_split.h"

#include <unistd.h>

#include <fstream>

#include "palimpsest/model/synthetic/synthetic.h"
#include "tests/support/split_gguf.h"

namespace palimpsest::testing {
namespace {

void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

Bytes bytes_of(const std::string& path) {
  Bytes bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

}  // namespace

SplitModel::SplitModel()
    : folder_(std::filesystem::temp_directory_path() / ("palimpsest-fuzz-" + std::to_string(::getpid()))) {
  std::filesystem::create_directories(folder_);
  SyntheticShape shape = parse_synthetic("tiny@layers=1@vocab=300@context=128");
  shape.width = shape.feed_forward = 32;
  shape.query_heads = 2;
  shape.kv_heads = 1;
  shape.head_dim = 16;
  const std::string whole = (folder_ / "whole.gguf").string();
  write_synthetic(shape, whole);
  paths_ = split_gguf(whole, (folder_ / "part").string(), 2);
  for (const std::string& path : paths_) parts_.push_back(bytes_of(path));
}

SplitModel::~SplitModel() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

LoadReport SplitModel::load(std::size_t part, const Bytes& damaged, bool repack) const {
  write_bytes(paths_[part], damaged);
  const LoadReport report = load_split_gguf(paths_.front(), repack);
  write_bytes(paths_[part], parts_[part]);
  return report;
}

}  // namespace palimpsest::testing
