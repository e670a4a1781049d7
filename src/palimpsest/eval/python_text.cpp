#include "palimpsest/eval/python_text.h"

#include <locale.h>
#include <wctype.h>

#include <algorithm>
#include <array>
#include <unordered_map>

namespace palimpsest::python {
namespace {

// A locale for Unicode letters and case, independent of the user's.
locale_t unicode() {
  static const locale_t made = [] {
    for (const char* name : {"C.UTF-8", "en_US.UTF-8", "UTF-8"})
      if (locale_t one = ::newlocale(LC_CTYPE_MASK, name, nullptr); one != nullptr) return one;
    return ::newlocale(LC_CTYPE_MASK, "C", nullptr);
  }();
  return made;
}

struct Match {
  std::size_t a = 0, b = 0, size = 0;
};

class Matcher {
 public:
  Matcher(std::u32string_view a, std::u32string_view b) : a_(a), b_(b) {
    for (std::size_t i = 0; i < b.size(); ++i) indices_[b[i]].push_back(i);
    constexpr std::size_t kPopularFrom = 200;
    if (b.size() >= kPopularFrom)  // "autojunk": characters that make up more than 1% of b start no match
      std::erase_if(indices_, [&](const auto& each) { return each.second.size() > b.size() / 100 + 1; });
  }

  std::size_t matching() const {
    std::size_t sum = 0;
    std::vector<std::array<std::size_t, 4>> queue = {{0, a_.size(), 0, b_.size()}};
    while (!queue.empty()) {
      const auto [a_low, a_high, b_low, b_high] = queue.back();
      queue.pop_back();
      const Match m = longest(a_low, a_high, b_low, b_high);
      if (m.size == 0) continue;
      sum += m.size;
      if (a_low < m.a && b_low < m.b) queue.push_back({a_low, m.a, b_low, m.b});
      if (m.a + m.size < a_high && m.b + m.size < b_high) queue.push_back({m.a + m.size, a_high, m.b + m.size, b_high});
    }
    return sum;
  }

 private:
  // Ties: the first in a, then the first in b. The match is then extended by popular characters.
  Match longest(std::size_t a_low, std::size_t a_high, std::size_t b_low, std::size_t b_high) const {
    Match best{a_low, b_low, 0};
    std::unordered_map<std::size_t, std::size_t> lengths, next;  // of matches that end at an index of b
    for (std::size_t i = a_low; i < a_high; ++i) {
      next.clear();
      if (const auto found = indices_.find(a_[i]); found != indices_.end())
        for (const std::size_t j : found->second) {
          if (j < b_low) continue;
          if (j >= b_high) break;
          const auto before = j > 0 ? lengths.find(j - 1) : lengths.end();
          const std::size_t size = (before == lengths.end() ? 0 : before->second) + 1;
          next[j] = size;
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      std::swap(lengths, next);
    }
    while (best.a > a_low && best.b > b_low && a_[best.a - 1] == b_[best.b - 1]) --best.a, --best.b, ++best.size;
    while (best.a + best.size < a_high && best.b + best.size < b_high &&
           a_[best.a + best.size] == b_[best.b + best.size])
      ++best.size;
    return best;
  }

  std::u32string_view a_, b_;
  std::unordered_map<char32_t, std::vector<std::size_t>> indices_;
};

}  // namespace

std::u32string decode(std::string_view utf8) {
  std::u32string out;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto byte = static_cast<unsigned char>(utf8[i]);
    const std::size_t more = byte < 0xC0 ? 0 : byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    char32_t c = more == 0 ? byte : byte & (0x3FU >> more);
    for (std::size_t k = 1; k <= more && i + k < utf8.size(); ++k)
      c = (c << 6U) | (static_cast<unsigned char>(utf8[i + k]) & 0x3FU);
    out += c;
    i += more + 1;
  }
  return out;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_digit(char32_t c) {
  constexpr char32_t kZeros[] = {'0',   0x660, 0x6F0, 0x7C0, 0x966, 0x9E6, 0xA66, 0xAE6,  0xB66,
                                 0xBE6, 0xC66, 0xCE6, 0xD66, 0xE50, 0xED0, 0xF20, 0x1040, 0xFF10};
  return std::ranges::any_of(kZeros, [c](char32_t zero) { return c >= zero && c < zero + 10; });
}

bool is_word(char32_t c) {
  return c == '_' || is_digit(c) || ::iswalnum_l(static_cast<wint_t>(c), unicode()) != 0;
}

char32_t lower(char32_t c) {
  return static_cast<char32_t>(::towlower_l(static_cast<wint_t>(c), unicode()));
}

std::vector<std::u32string> split(std::u32string_view text) {
  std::vector<std::u32string> out;
  for (std::size_t i = 0; i < text.size();) {
    while (i < text.size() && is_space(text[i])) ++i;
    std::size_t end = i;
    while (end < text.size() && !is_space(text[end])) ++end;
    if (end > i) out.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return out;
}

std::vector<std::u32string> split(std::u32string_view text, char32_t at) {
  std::vector<std::u32string> out;
  for (std::size_t end; (end = text.find(at)) != std::u32string_view::npos; text.remove_prefix(end + 1))
    out.emplace_back(text.substr(0, end));
  out.emplace_back(text);
  return out;
}

std::vector<std::u32string> numbers(std::u32string_view text) {
  std::vector<std::u32string> out;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i;
    while (end < text.size() && is_digit(text[end])) ++end;
    if (end > i) out.emplace_back(text.substr(i, end - i));
    i = end + 1;
  }
  return out;
}

double similarity(std::u32string_view a, std::u32string_view b) {
  if (a.empty() && b.empty()) return 1;
  return 2.0 * static_cast<double>(Matcher(a, b).matching()) / static_cast<double>(a.size() + b.size());
}

}  // namespace palimpsest::python
