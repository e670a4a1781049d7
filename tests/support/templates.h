// Chat templates of known models: files of llama.cpp's source package (docs/decisions/0024-llama-common.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace palimpsest::testing {

struct TemplateFamily {
  const char* family;
  const char* file;
  int tools;  // 0: none; 1: calls, no descriptions; 2: both
};
const std::vector<TemplateFamily>& template_families();

std::optional<std::string> template_path(const std::string& file);  // nullopt: not there

}  // namespace palimpsest::testing
