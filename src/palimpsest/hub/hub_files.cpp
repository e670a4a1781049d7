#include "palimpsest/hub/hub_files.h"

#include <algorithm>

#include "palimpsest/core/letter_case.h"
#include "palimpsest/hub/names.h"

namespace palimpsest {
namespace {

// The first or only file of a model.
bool begins_a_model(const HubFile& file) {
  const std::string_view name = file.file_name();
  const std::string lower = lower_case(name);
  if (!is_safe_file_name(name) || !lower.ends_with(".gguf")) return false;
  if (lower.find("mmproj") != lower.npos || lower.find("imatrix") != lower.npos) return false;
  const auto split = split_name(name);
  return !split || split->number == 1;
}

// "q4_k_m" is in "x-Q4_K_M.gguf", and not in "x-IQ4_K_M.gguf".
bool names_quant(std::string_view file, std::string_view tag) {
  const std::string lower = lower_case(file), part = lower_case(tag);
  for (auto at = lower.find(part); at != lower.npos; at = lower.find(part, at + 1)) {
    const bool begins = at == 0 || std::string_view("-._").find(lower[at - 1]) != std::string_view::npos;
    const auto end = at + part.size();
    if (begins && (lower[end] == '.' || lower[end] == '-')) return true;
  }
  return false;
}

bool matches(const HubFile& file, std::string_view tag) {
  const std::string_view name = file.file_name();
  if (lower_case(tag).ends_with(".gguf")) return name == tag;
  // "UD-Q4_K_M" is another one than "Q4_K_M".
  if (const std::string quant = quant_in(name); !quant.empty()) return quant == upper_case(tag);
  return names_quant(name, tag);
}

}  // namespace

std::string tag_of(std::string_view file_name) {
  const std::string quant = quant_in(file_name);
  return quant.empty() ? std::string(file_name) : quant;
}

std::vector<HubFile> choose_files(const std::vector<HubFile>& files, std::string_view tag) {
  std::vector<HubFile> models;
  std::ranges::copy_if(files, std::back_inserter(models), begins_a_model);
  std::ranges::sort(models, {}, &HubFile::path);
  const auto find = [&](std::string_view wanted) {
    return std::ranges::find_if(models, [&](const HubFile& file) { return matches(file, wanted); });
  };
  auto first = models.end();
  if (!tag.empty()) {
    first = find(tag);
  } else {
    for (const char* usual : {"Q4_K_M", "Q8_0"})
      if (first == models.end()) first = find(usual);
    if (first == models.end()) first = models.begin();
  }
  if (first == models.end()) return {};
  std::vector<HubFile> out = {*first};
  const auto split = split_name(first->file_name());
  if (!split) return out;
  const std::string folder = first->path.substr(0, first->path.size() - first->file_name().size());
  for (int part = 2; part <= split->count; ++part) {
    const auto at = std::ranges::find(files, folder + split->part(part), &HubFile::path);
    if (at == files.end()) return {};
    out.push_back(*at);
  }
  return out;
}

std::vector<std::string> tags_of(const std::vector<HubFile>& files) {
  std::vector<std::string> out;
  for (const HubFile& file : files)
    if (begins_a_model(file)) out.push_back(tag_of(file.file_name()));
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
  return out;
}

}  // namespace palimpsest
