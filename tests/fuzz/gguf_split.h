// A model in two files, of which a fuzzer damages one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/gguf_target.h"
#include "tests/fuzz/mutator.h"

namespace palimpsest::testing {

class SplitModel {
 public:
  SplitModel();
  ~SplitModel();
  SplitModel(const SplitModel&) = delete;
  SplitModel& operator=(const SplitModel&) = delete;

  const std::vector<Bytes>& parts() const { return parts_; }  // undamaged
  LoadReport load(std::size_t part, const Bytes& damaged, bool repack) const;

 private:
  std::filesystem::path folder_;
  std::vector<std::string> paths_;
  std::vector<Bytes> parts_;
};

}  // namespace palimpsest::testing
