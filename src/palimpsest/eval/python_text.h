// The few things of Python's str that published metrics lean on, over code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace palimpsest::python {

std::u32string decode(std::string_view utf8);                              // a byte that is no UTF-8 stands for itself
bool is_space(char32_t c);                                                 // what str.split() splits at
bool is_digit(char32_t c);                                                 // \d
bool is_word(char32_t c);                                                  // \w
char32_t lower(char32_t c);                                                // of one code point to one
std::vector<std::u32string> split(std::u32string_view text);               // at blanks, no empty parts
std::vector<std::u32string> split(std::u32string_view text, char32_t at);  // at each, empty parts too
std::vector<std::u32string> numbers(std::u32string_view text);             // re.findall(r"\d+")
// difflib.SequenceMatcher(None, a, b).ratio()
double similarity(std::u32string_view a, std::u32string_view b);

}  // namespace palimpsest::python
