// Filler text for needle tests, split into sentences, paragraphs and words.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// Random draws that are the same on every machine (the standard library's distributions differ).
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }  // n > 0
  template <typename T>
  const T& one_of(const std::vector<T>& among) {
    return among[static_cast<std::size_t>(below(among.size()))];
  }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[static_cast<std::size_t>(below(i))]);
  }

 private:
  std::mt19937_64 engine_;
};

class Haystack {
 public:
  // Paragraphs are separated by empty lines; line ends inside them become spaces. Throws Error for a text of fewer than
  // ten sentences. `name` is used in errors.
  Haystack(std::string_view text, std::string name);

  const std::vector<std::string>& sentences() const { return sentences_; }
  const std::vector<std::string>& paragraphs() const { return paragraphs_; }
  const std::vector<std::string>& words() const { return words_; }  // distinct, 4 to 9 lower-case letters, in order
  const std::string& name() const { return name_; }

 private:
  std::vector<std::string> sentences_, paragraphs_, words_;
  std::string name_;
};

}  // namespace palimpsest
