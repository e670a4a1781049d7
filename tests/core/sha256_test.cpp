// FIPS 180-4's examples, and lengths around a block.
#include "palimpsest/core/sha256.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "palimpsest/core/random_bytes.h"

namespace palimpsest::testing {
namespace {

TEST(Sha256, Examples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, EveryLength) {
  std::set<std::string> all;
  for (std::size_t length = 0; length < 200; ++length) all.insert(sha256_hex(std::string(length, 'x')));
  EXPECT_EQ(all.size(), 200u);
}

TEST(RandomBytes, Differ) {
  std::set<std::vector<std::byte>> all;
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> bytes(12);
    palimpsest::random_bytes(bytes);
    all.insert(bytes);
  }
  EXPECT_EQ(all.size(), 1000u);
}

}  // namespace
}  // namespace palimpsest::testing
