// What sets one architecture apart from the others; everything else is one decoder graph (graph.cpp).
#pragma once

#include <string>
#include <string_view>

#include "palimpsest/attention/rope.h"

namespace palimpsest {

enum class Presence { kNo, kOptional, kYes };  // of a tensor in the file

struct Family {
  std::string_view architecture;            // GGUF general.architecture
  RopeKind rope = RopeKind::kHalves;        // how the file's Q and K rows pair up
  Presence qkv_bias = Presence::kNo;        // attn_{q,k,v}.bias
  Presence attention_bias = Presence::kNo;  // attn_output.bias
  bool qk_norm = false;                     // RMS norm over each head of Q and K, before the rotation
};

// Throws Error that names the architecture and lists the supported ones.
const Family& find_family(std::string_view architecture);
std::string supported_architectures();  // "llama, qwen2, qwen3"

}  // namespace palimpsest
