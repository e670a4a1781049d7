// Files as torch.save() and safetensors write them, for tests: a zip of entries that are not compressed, with a pickle
// of protocol 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace palimpsest::testing {

using FileBytes = std::vector<std::byte>;

inline FileBytes bytes_of_text(const std::string& text) {
  const auto all = std::as_bytes(std::span(text));
  return {all.begin(), all.end()};
}

class TestZip {
 public:
  void add(const std::string& name, const std::string& content) {
    const std::size_t at = local_.size();
    number(local_, 0x04034b50, 4);
    zeros(local_, 14);  // version, flags, method, time, checksum
    number(local_, content.size(), 4);
    number(local_, content.size(), 4);
    number(local_, name.size(), 2);
    number(local_, 0, 2);
    local_ += name + content;
    number(central_, 0x02014b50, 4);
    zeros(central_, 16);
    number(central_, content.size(), 4);
    number(central_, content.size(), 4);
    number(central_, name.size(), 2);
    zeros(central_, 12);
    number(central_, at, 4);
    central_ += name;
    ++count_;
  }
  std::string whole() const {
    std::string out = local_ + central_;
    number(out, 0x06054b50, 4);
    zeros(out, 4);
    number(out, count_, 2);
    number(out, count_, 2);
    number(out, central_.size(), 4);
    number(out, local_.size(), 4);
    number(out, 0, 2);
    return out;
  }

 private:
  static void number(std::string& out, std::size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  }
  static void zeros(std::string& out, int count) { out.append(static_cast<std::size_t>(count), '\0'); }

  std::string local_, central_;
  std::size_t count_ = 0;
};

// Opcodes of a pickle.
struct TestPickle {
  static std::string text(const std::string& value) { return "X" + length(value.size()) + value; }
  static std::string global(const std::string& module, const std::string& name) {
    return "c" + module + "\n" + name + "\n";
  }
  static std::string number(std::int32_t value) { return "J" + length(static_cast<std::uint32_t>(value)); }
  // Of one dimension, in a storage of its own.
  static std::string tensor(const std::string& storage, std::int32_t size, const std::string& type = "FloatStorage") {
    return global("torch._utils", "_rebuild_tensor_v2") + "((" + text("storage") + global("torch", type) +
           text(storage) + text("cpu") + number(size) + "tQ" + number(0) + number(size) + "\x85" + number(1) +
           "\x85\x89" + global("collections", "OrderedDict") + ")RtR";
  }
  static std::string dict(const std::string& items) { return "}(" + items + "u"; }

 private:
  static std::string length(std::uint64_t value) {
    std::string out;
    for (int i = 0; i < 4; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
    return out;
  }
};

// A file of torch.save() with this pickle and these storages of f32.
inline FileBytes torch_file(const std::string& pickle, const std::map<std::string, std::vector<float>>& storages) {
  TestZip zip;
  zip.add("archive/data.pkl", "\x80\x02" + pickle + ".");
  zip.add("archive/byteorder", "little");
  for (const auto& [name, values] : storages) {
    std::string content(values.size() * sizeof(float), '\0');
    std::memcpy(content.data(), values.data(), content.size());
    zip.add("archive/data/" + name, content);
  }
  return bytes_of_text(zip.whole());
}

// Statistics as TriAttention publishes them: of each query head `pairs` means and lengths, which follow from `value`.
template <typename Value>  // (layer, query head, 0: real, 1: imaginary, 2: length; pair) -> float
FileBytes triattention_file(int layers, int query_heads, int pairs, Value value) {
  std::string stats;
  std::map<std::string, std::vector<float>> storages;
  const auto two_digits = [](int n) { return std::string(n < 10 ? "0" : "") + std::to_string(n); };
  for (int layer = 0; layer < layers; ++layer)
    for (int head = 0; head < query_heads; ++head) {
      std::string entry;
      for (int which = 0; which < 3; ++which) {
        const std::string storage = std::to_string(storages.size());
        for (int pair = 0; pair < pairs; ++pair) storages[storage].push_back(value(layer, head, which, pair));
        const char* const names[] = {"q_mean_real", "q_mean_imag", "q_abs_mean"};
        entry += TestPickle::text(names[which]) + TestPickle::tensor(storage, pairs);
      }
      stats += TestPickle::text("layer" + two_digits(layer) + "_head" + two_digits(head)) + TestPickle::dict(entry);
    }
  return torch_file(TestPickle::dict(TestPickle::text("metadata") +
                                     TestPickle::dict(TestPickle::text("model_name") + TestPickle::text("tiny/test")) +
                                     TestPickle::text("stats") + TestPickle::dict(stats)),
                    storages);
}

inline FileBytes safetensors_file(const std::string& header, const std::vector<float>& data) {
  const std::uint64_t length = header.size();
  FileBytes out(sizeof length + header.size() + data.size() * sizeof(float));
  std::memcpy(out.data(), &length, sizeof length);
  std::memcpy(out.data() + sizeof length, header.data(), header.size());
  if (!data.empty()) std::memcpy(out.data() + sizeof length + header.size(), data.data(), data.size() * sizeof(float));
  return out;
}

}  // namespace palimpsest::testing
