#include "palimpsest/hub/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "palimpsest/core/error.h"
#include "palimpsest/core/letter_case.h"

namespace palimpsest {
namespace {

constexpr std::string_view kScheme = "hf:", kSuffix = ".gguf";
constexpr std::size_t kMaxName = 200;  // a file system allows 255; we append to it

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

// What the hub allows in names of users and repositories. ".." and "--" are not among them, so that a folder's name
// hf--USER--REPO--TAG can be read back.
bool is_repository_part(std::string_view text) {
  return !text.empty() && text.size() <= 96 && std::ranges::all_of(text, is_plain) && text.front() != '.' &&
         text.front() != '-' && text.find("..") == text.npos && text.find("--") == text.npos;
}

}  // namespace

std::string HubName::spelled() const {
  return fmt::format("hf:{}/{}{}{}", user, repo, tag.empty() ? "" : ":", tag);
}

bool is_hub_name(std::string_view text) {
  return text.starts_with(kScheme);
}

bool is_address(std::string_view text) {
  const std::string head = lower_case(text.substr(0, 8));
  return head.starts_with("http://") || head.starts_with("https://");
}

HubName parse_hub_name(std::string_view text) {
  const std::string_view given = text;
  if (is_hub_name(text)) text.remove_prefix(kScheme.size());
  HubName name;
  if (const auto colon = text.find(':'); colon != text.npos) {
    name.tag = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_safe_file_name(name.tag))
      fail("{}: after the colon, name a quantisation (Q4_K_M) or a file of the repository", given);
  }
  const auto slash = text.find('/');
  if (slash != text.npos) name.user = text.substr(0, slash), name.repo = text.substr(slash + 1);
  if (!is_repository_part(name.user) || !is_repository_part(name.repo))
    fail("{}: write hf:USER/REPO or hf:USER/REPO:QUANT, as in hf:ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", given);
  return name;
}

bool is_safe_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' && name.front() != '-' &&
         std::ranges::all_of(name, [](char c) { return is_plain(c) || c == '+'; });
}

std::optional<SplitName> split_name(std::string_view file) {
  static const std::regex pattern(R"(^(.*)-(\d{5})-of-(\d{5})\.gguf$)", std::regex::icase);
  std::cmatch match;  // long names would need a deep stack
  if (file.size() > kMaxName || !std::regex_match(file.begin(), file.end(), match, pattern)) return std::nullopt;
  SplitName out{.stem = match[1], .number = std::stoi(match[2]), .count = std::stoi(match[3])};
  if (out.number < 1 || out.number > out.count) return std::nullopt;
  return out;
}

std::string SplitName::part(int index) const {
  return fmt::format("{}-{:05}-of-{:05}.gguf", stem, index, count);
}

std::string quant_in(std::string_view file) {
  std::string stem(file.substr(file.rfind('/') + 1));
  if (stem.size() > kMaxName) return {};
  if (const auto split = split_name(stem))
    stem = split->stem;
  else if (lower_case(stem).ends_with(kSuffix))
    stem.resize(stem.size() - kSuffix.size());
  static const std::regex pattern(R"(^(?:.*[-._])?(I?Q\d\w*|TQ\d\w*|BF16|F16|F32|FP16|MXFP4\w*)$)", std::regex::icase);
  std::smatch match;
  if (!std::regex_match(stem, match, pattern)) return {};
  const std::string quant = upper_case(match[1].str());
  const auto at = stem.size() - quant.size();
  const bool dynamic = at >= 3 && upper_case(stem.substr(at - 3, 3)) == "UD-";
  return dynamic ? "UD-" + quant : quant;
}

}  // namespace palimpsest
