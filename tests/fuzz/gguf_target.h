// The fuzzers' target: loads a file of any content as the program does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace palimpsest::testing {

struct LoadReport {
  bool model = false, vocabulary = false;  // whether it was accepted
  std::string complaint;                   // the first Error's message
};

// Loads the model and, if it is accepted (or `vocabulary_always`), its vocabulary; decodes two tokens with an accepted
// model. Catches Error only.
LoadReport load_gguf(std::span<const std::byte> bytes, bool repack, bool vocabulary_always);

// The same for a model in several files, by the path of the first, without the vocabulary.
LoadReport load_split_gguf(const std::string& path, bool repack);

}  // namespace palimpsest::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
