// The palimpsest command under test, without a model from the environment or the user's folder.
#pragma once

#include <gtest/gtest.h>

#include "tests/support/own_file.h"
#include "tests/support/shared_dir.h"
#include "tests/support/subprocess.h"

namespace palimpsest::testing {

using Words = std::vector<std::string>;

std::string command_path();  // of the program under test

inline Finished command(const Words& words, const std::string& input = {}) {
  return run_program(
      command_path(), words, input,
      {{"PALIMPSEST_MODEL", ""}, {"PALIMPSEST_MODELS", "/nowhere/models"}, {"XDG_CACHE_HOME", own_file("cache")}});
}

// Exit code 2, empty standard output, one line on standard error with the prefix of errors and `part`.
inline void expect_refused(const Words& words, const std::string& part, const std::string& input = {}) {
  const Finished done = command(words, input);
  EXPECT_EQ(done.code, 2) << done.err;
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(done.err.starts_with("palimpsest: error: ")) << done.err;
  EXPECT_NE(done.err.find(part), std::string::npos) << done.err;
  EXPECT_EQ(done.err.find('\n'), done.err.size() - 1) << done.err;
}

// Tests on the default model; `on` appends the flags for it and one thread.
class WithDefaultModel : public ::testing::Test {
 protected:
  Words on(Words words) const {
    words.insert(words.end(), {"-m", model_, "-t", "1"});
    return words;
  }
  Finished run(Words words, const std::string& input = {}) const {
    words.insert(words.begin(), "run");
    return command(on(words), input);
  }
  std::string model_ = default_model();
  static constexpr std::size_t layers_ = 6, kv_heads_ = 2, head_dim_ = 64;
  // Bytes of a token in an f16 cache: layers x KV heads x (key and value) x width x 2.
  static constexpr std::size_t token_bytes_ = layers_ * kv_heads_ * 2 * head_dim_ * 2;
};

}  // namespace palimpsest::testing
