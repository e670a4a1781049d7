#include "tests/support/templates.h"

#include <filesystem>

namespace palimpsest::testing {

const std::vector<TemplateFamily>& template_families() {
  static const std::vector<TemplateFamily> families = {
      {"Llama 3.1", "meta-llama-Llama-3.1-8B-Instruct.jinja", 2},
      {"Llama 3.2", "meta-llama-Llama-3.2-3B-Instruct.jinja", 2},
      {"Llama 3.3", "meta-llama-Llama-3.3-70B-Instruct.jinja", 2},
      {"Qwen 2.5", "Qwen-Qwen2.5-7B-Instruct.jinja", 2},
      {"Qwen 3", "Qwen-Qwen3-0.6B.jinja", 2},
      {"Mistral", "mistralai-Mistral-Nemo-Instruct-2407.jinja", 2},
      {"Hermes", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use.jinja", 2},
      {"DeepSeek R1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja", 1},
      {"DeepSeek V3.1", "deepseek-ai-DeepSeek-V3.1.jinja", 1},
      {"gpt-oss", "openai-gpt-oss-120b.jinja", 2},
      {"Gemma 2", "google-gemma-2-2b-it.jinja", 0},
      {"Gemma 4", "google-gemma-4-31B-it.jinja", 2},
      {"Phi 3.5", "microsoft-Phi-3.5-mini-instruct.jinja", 0},
      {"Granite 3.3", "ibm-granite-granite-3.3-2B-Instruct.jinja", 0},
      {"Granite 4", "ibm-granite-granite-4.0.jinja", 2},
      {"Command R7B", "CohereForAI-c4ai-command-r7b-12-2024-tool_use.jinja", 2},
  };
  return families;
}

std::optional<std::string> template_path(const std::string& file) {
  const std::filesystem::path path = std::filesystem::path(PALIMPSEST_TEMPLATES) / file;
  if (*PALIMPSEST_TEMPLATES == '\0' || !std::filesystem::exists(path)) return std::nullopt;
  return path.string();
}

}  // namespace palimpsest::testing
