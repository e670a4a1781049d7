// LoRA adapters in GGUF (llama.cpp's convert_lora_to_gguf.py), merged into a model's matrices before they are loaded:
//
//   W + scale * alpha / rank * B A        lora_a: A [in, rank], lora_b: B [rank, out]
//
// A merged matrix of a quantised type becomes Q8_0, whose rounding is far below that of 4 bits; floats keep their type.
#pragma once

#include <string>

#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

// Replaces the adapted tensors of `model`. Throws Error for an adapter of another architecture or of other shapes.
void merge_lora(GgufFile& model, const std::string& path, float scale);

}  // namespace palimpsest
