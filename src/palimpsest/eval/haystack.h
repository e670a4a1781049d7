// Text to hide something in: whole sentences or paragraphs, from any place of it.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

// The same draws from the same seed on every machine (the standard's distributions differ).
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
  // Paragraphs are parted by empty lines; line ends inside them are blanks. Throws Error for a text of less than ten
  // sentences. `name` is what errors call it.
  Haystack(std::string_view text, std::string name);

  const std::vector<std::string>& sentences() const { return sentences_; }
  const std::vector<std::string>& paragraphs() const { return paragraphs_; }
  const std::vector<std::string>& words() const { return words_; }  // of 4 to 9 small letters, each once, as they come
  const std::string& name() const { return name_; }

 private:
  std::vector<std::string> sentences_, paragraphs_, words_;
  std::string name_;
};

}  // namespace palimpsest
