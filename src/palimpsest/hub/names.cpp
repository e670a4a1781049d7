#include "palimpsest/hub/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
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

// Optimal string alignment: insertions, deletions, replacements, and swaps of neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
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

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  const std::string given = lower_case(name);
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, given.size() / 3) + 1;
  for (const std::string& each : candidates) {
    const std::string candidate = lower_case(each);
    // A beginning is near ("smol"), but not nearer than a slip.
    std::size_t distance = edit_distance(given, candidate);
    if (given.size() >= 3 && candidate.starts_with(given)) distance = std::min<std::size_t>(distance, 2);
    if (distance < best_distance) best_distance = distance, best = each;
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const auto near = nearest_name(name, candidates);
  return near ? fmt::format("; did you mean '{}'?", *near) : "";
}

}  // namespace palimpsest
