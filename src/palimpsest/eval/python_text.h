// The functions of Python's str that published metrics use, over code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest::python {

std::u32string decode(std::string_view utf8);                 // invalid bytes map to themselves
bool is_space(char32_t c);                                    // white space of str.split()
bool is_digit(char32_t c);                                    // \d
bool is_word(char32_t c);                                     // \w
char32_t lower(char32_t c);                                   // simple case mapping
std::vector<std::u32string> split(std::u32string_view text);  // str.split(): at white space, no empty parts
std::vector<std::u32string> split(std::u32string_view text, char32_t at);  // str.split(at): with empty parts
std::vector<std::u32string> numbers(std::u32string_view text);             // re.findall(r"\d+")
// difflib.SequenceMatcher(None, a, b).ratio()
double similarity(std::u32string_view a, std::u32string_view b);

}  // namespace palimpsest::python
