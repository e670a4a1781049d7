// What the fuzzers call: one file of any content, loaded as the program would load it.
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

// Reads the model and, if it was accepted (or `vocabulary_always`), its vocabulary; decodes two tokens of an accepted
// model. Only Error may come out of the loader: anything else goes through.
LoadReport load_gguf(std::span<const std::byte> bytes, bool repack, bool vocabulary_always);

}  // namespace palimpsest::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
