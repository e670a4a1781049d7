#include "palimpsest/fit/foreign_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/fit/plain_pickle.h"
#include "palimpsest/fit/zip_entries.h"

namespace palimpsest {
namespace {

constexpr std::size_t kMaxNames = 1 << 20, kMaxPath = 1000;
constexpr std::size_t kMaxValues = std::size_t{1} << 28;  // numbers of all tensors: they may overlap in the file
constexpr int kMaxDepth = 8;
constexpr std::string_view kZip = "PK\x03\x04";

// Numbers of a type, as both kinds of file name it.
struct NumberType {
  std::string_view torch, safetensors;
  std::size_t bytes;
  float (*read)(const std::byte*);
};

float read_f32(const std::byte* from) {
  float value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float read_f64(const std::byte* from) {
  double value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<float>(value);
}
std::uint16_t read_u16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float read_bf16(const std::byte* from) {
  return std::bit_cast<float>(std::uint32_t{read_u16(from)} << 16);
}
// Subnormal halves are multiples of 2^-24.
float read_f16(const std::byte* from) {
  const std::uint32_t half = read_u16(from), sign = (half & 0x8000) << 16, exponent = half >> 10 & 0x1f,
                      fraction = half & 0x3ff;
  if (exponent == 0) {
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 0x1f ? 0xff : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

constexpr auto kNumberTypes = std::to_array<NumberType>({{"torch FloatStorage", "F32", 4, read_f32},
                                                         {"torch DoubleStorage", "F64", 8, read_f64},
                                                         {"torch HalfStorage", "F16", 2, read_f16},
                                                         {"torch BFloat16Storage", "BF16", 2, read_bf16}});

const NumberType* number_type(std::string_view NumberType::*how, std::string_view name) {
  const auto found = std::ranges::find(kNumberTypes, name, how);
  return found == kNumberTypes.end() ? nullptr : &*found;
}

// The number of elements; -1: more than `max`, or a negative length.
std::int64_t elements(std::span<const std::int64_t> shape, std::int64_t max) {
  std::int64_t count = 1;
  for (const std::int64_t length : shape) {
    if (length < 0 || (length > 0 && count > max / length)) return -1;
    count *= length;
  }
  return count <= max ? count : -1;
}

class NumberCount {
 public:
  void add(std::int64_t more, const std::string& name) {
    count_ += static_cast<std::size_t>(more);
    if (count_ > kMaxValues)
      fail("{}: its tensors have more than {} numbers: no calibration has so many", name, kMaxValues);
  }

 private:
  std::size_t count_ = 0;
};

// The objects of data.pkl.
class TorchObjects {
 public:
  TorchObjects(std::span<const std::byte> bytes, const std::string& name)
      : entries_(zip_entries(bytes, name)), name_(name) {
    const auto pickle = std::ranges::find_if(entries_, [](const auto& e) { return e.first.ends_with("/data.pkl"); });
    if (pickle == entries_.end()) fail("{}: is a zip archive without data.pkl: give a file of torch.save()", name);
    folder_ = pickle->first.substr(0, pickle->first.size() - std::string_view("data.pkl").size());
    if (const auto order = entries_.find(folder_ + "byteorder"); order != entries_.end() && order->second.size() == 3)
      fail("{}: its numbers are big-endian: write it on a machine of another byte order", name);
    objects_ = read_pickle(pickle->second, name);
  }

  ForeignFile flat() && {
    add("", objects_.root, 0);
    return std::move(out_);
  }

 private:
  using Kind = PickleValue::Kind;
  const PickleValue& at(int index) const { return objects_.at(index); }
  [[noreturn]] void damaged(const std::string& path) const { fail("{} is damaged: tensor {}", name_, path); }

  void add(const std::string& path, int index, int depth) {
    const PickleValue& value = at(index);
    if (++names_ > kMaxNames || depth > kMaxDepth || path.size() > kMaxPath)
      fail("{}: more than {} values, dictionaries inside more than {} others, or names of more than {} characters",
           name_, kMaxNames, kMaxDepth, kMaxPath);
    if (value.kind == Kind::kText) out_.texts[path] = value.text;
    if (value.kind == Kind::kCall && at(value.items[0]).text.starts_with("torch._utils _rebuild_tensor"))
      out_.tensors[path] = tensor(path, value.items[1]);
    if (value.kind != Kind::kDict) return;
    for (std::size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const PickleValue& key = at(value.items[i]);
      if (key.kind == Kind::kText) add(path.empty() ? key.text : path + "." + key.text, value.items[i + 1], depth + 1);
    }
  }

  std::vector<std::int64_t> numbers(const std::string& path, int index) const {
    std::vector<std::int64_t> out;
    for (const int item : at(index).items) {
      const double number = at(item).number;
      if (at(item).kind != Kind::kNumber || !(number >= 0 && number <= 0x1p40)) damaged(path);
      out.push_back(static_cast<std::int64_t>(number));
    }
    return out;
  }

  // Arguments: storage, offset, shape, strides, ...; a storage's id: "storage", type, name, device, length.
  ForeignTensor tensor(const std::string& path, int index) {
    const std::vector<int>& arguments = at(index).items;
    if (arguments.size() < 4 || at(arguments[0]).kind != Kind::kStored) damaged(path);
    const std::vector<int>& id = at(at(arguments[0]).items[0]).items;
    if (id.size() < 3 || at(id[1]).kind != Kind::kGlobal) damaged(path);
    const NumberType* const type = number_type(&NumberType::torch, at(id[1]).text);
    if (type == nullptr) return {};  // whole numbers: no weights
    const auto found = entries_.find(folder_ + "data/" + at(id[2]).text);
    if (found == entries_.end()) damaged(path);
    const std::span<const std::byte> data = found->second;
    ForeignTensor out{.shape = numbers(path, arguments[2]), .values = {}};
    const std::vector<std::int64_t> strides = numbers(path, arguments[3]);
    const auto stored = static_cast<std::int64_t>(data.size() / type->bytes);
    const std::int64_t count = elements(out.shape, stored);
    const double offset = at(arguments[1]).number;
    if (count < 0 || strides.size() != out.shape.size() || !(offset >= 0 && offset <= static_cast<double>(stored)))
      damaged(path);
    numbers_.add(count, name_);
    out.values.reserve(static_cast<std::size_t>(count));
    std::vector<std::int64_t> at_index(out.shape.size());
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t from = static_cast<std::int64_t>(offset);
      for (std::size_t d = 0; d < strides.size(); ++d) {
        if (at_index[d] > 0 && strides[d] > stored / at_index[d]) damaged(path);
        from += at_index[d] * strides[d];
      }
      if (from >= stored) damaged(path);
      out.values.push_back(type->read(data.data() + static_cast<std::size_t>(from) * type->bytes));
      for (std::size_t d = strides.size(); d-- > 0;) {  // the last index is the fastest
        if (++at_index[d] < out.shape[d]) break;
        at_index[d] = 0;
      }
    }
    return out;
  }

  std::map<std::string, std::span<const std::byte>> entries_;
  const std::string& name_;
  std::string folder_;
  PlainPickle objects_;
  ForeignFile out_;
  std::size_t names_ = 0;
  NumberCount numbers_;
};

// A length, a header in JSON, and the data of all tensors.
ForeignFile read_safetensors(std::span<const std::byte> bytes, const std::string& name) {
  std::uint64_t length = 0;
  if (bytes.size() >= sizeof length) std::memcpy(&length, bytes.data(), sizeof length);
  if (bytes.size() < sizeof length + 2 || length > bytes.size() - sizeof length ||
      bytes[sizeof length] != std::byte{'{'})
    fail("{}: is neither a file of torch.save() nor safetensors", name);
  const auto* const text = reinterpret_cast<const char*>(bytes.data()) + sizeof length;
  const auto header = nlohmann::json::parse(text, text + length, nullptr, false);
  const auto damaged = [&](const std::string& what) { fail("{} is damaged: {}", name, what); };
  if (!header.is_object()) damaged("its header is no JSON object");
  const auto data = bytes.subspan(sizeof length + static_cast<std::size_t>(length));
  const auto is_length = [](const nlohmann::json& value) { return value.is_number_unsigned(); };
  const auto lengths = [&](const nlohmann::json& tensor, const char* key) {
    return tensor.contains(key) && tensor[key].is_array() && std::ranges::all_of(tensor[key], is_length);
  };
  ForeignFile out;
  NumberCount numbers;
  for (const auto& [key, tensor] : header.items()) {
    if (key == "__metadata__" && tensor.is_object()) {
      for (const auto& [word, value] : tensor.items())
        if (value.is_string()) out.texts[word] = value.get<std::string>();
      continue;
    }
    if (!tensor.is_object() || !tensor.contains("dtype") || !tensor["dtype"].is_string() || !lengths(tensor, "shape") ||
        !lengths(tensor, "data_offsets") || tensor["data_offsets"].size() != 2)
      damaged("tensor " + key);
    const auto first = tensor["data_offsets"][0].get<std::uint64_t>(),
               last = tensor["data_offsets"][1].get<std::uint64_t>();
    const NumberType* const type = number_type(&NumberType::safetensors, tensor["dtype"].get<std::string>());
    if (type == nullptr) continue;  // whole numbers: no weights
    if (first > last || last > data.size()) damaged("tensor " + key);
    ForeignTensor& to = out.tensors[key];
    for (const auto& each : tensor["shape"])
      to.shape.push_back(static_cast<std::int64_t>(std::min<std::uint64_t>(each.get<std::uint64_t>(), INT64_MAX)));
    const auto count = static_cast<std::int64_t>((last - first) / type->bytes);
    if (elements(to.shape, count) != count || (last - first) % type->bytes != 0) damaged("tensor " + key);
    numbers.add(count, name);
    to.values.reserve(static_cast<std::size_t>(count));
    for (std::size_t at = static_cast<std::size_t>(first); at < last; at += type->bytes)
      to.values.push_back(type->read(data.data() + at));
  }
  return out;
}

}  // namespace

ForeignFile read_foreign(std::span<const std::byte> bytes, const std::string& name) {
  const bool zip = bytes.size() > kZip.size() && std::memcmp(bytes.data(), kZip.data(), kZip.size()) == 0;
  return zip ? TorchObjects(bytes, name).flat() : read_safetensors(bytes, name);
}

}  // namespace palimpsest
