#include "palimpsest/core/gguf_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "palimpsest/core/error.h"

namespace palimpsest {

static_assert(std::endian::native == std::endian::little, "GGUF files are read in place, as little endian");

namespace {

constexpr std::uint64_t kMaxDim = std::uint64_t{1} << 48;  // no dimension of a tensor is larger

std::size_t scalar_bytes(gguf_type type) {  // 0: not a scalar
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<std::int64_t> load_integer(gguf_type type, const std::byte* at) {
  switch (type) {
    case GGUF_TYPE_UINT8:
      return load<std::uint8_t>(at);
    case GGUF_TYPE_INT8:
      return load<std::int8_t>(at);
    case GGUF_TYPE_UINT16:
      return load<std::uint16_t>(at);
    case GGUF_TYPE_INT16:
      return load<std::int16_t>(at);
    case GGUF_TYPE_UINT32:
      return load<std::uint32_t>(at);
    case GGUF_TYPE_INT32:
      return load<std::int32_t>(at);
    case GGUF_TYPE_INT64:
      return load<std::int64_t>(at);
    case GGUF_TYPE_UINT64: {
      const auto value = load<std::uint64_t>(at);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> load_number(gguf_type type, const std::byte* data) {
  if (type == GGUF_TYPE_FLOAT32) return load<float>(data);
  if (type == GGUF_TYPE_FLOAT64) return load<double>(data);
  const auto whole = load_integer(type, data);
  return whole ? std::make_optional(static_cast<double>(*whole)) : std::nullopt;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 60)) out += c >= 32 && c < 127 ? c : '?';
  return text.size() > 60 ? out + "..." : out;
}

// Reads the bytes in order; every read is checked.
class GgufFile::Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  const std::byte* take(std::uint64_t count, const char* what) {
    if (count > left())
      fail("{}: ends inside {} (byte {} of {}): truncated or damaged; fetch or convert the model again", path_, what,
           at_, bytes_.size());
    const std::byte* start = bytes_.data() + at_;
    at_ += static_cast<std::size_t>(count);
    return start;
  }
  template <typename T>
  T scalar(const char* what) {
    return load<T>(take(sizeof(T), what));
  }
  std::string_view string(const char* what) {
    const auto length = scalar<std::uint64_t>(what);
    return {reinterpret_cast<const char*>(take(length, what)), static_cast<std::size_t>(length)};
  }
  std::size_t at() const { return at_; }
  std::uint64_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  const std::string& path_;
  std::size_t at_ = 0;
};

GgufFile GgufFile::open_one(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  file.parts_ = {file.files_.emplace_back(path, "a GGUF file").bytes()};
  file.owned_ = true;
  file.read();
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, const std::string& name, std::shared_ptr<const void> keep) {
  GgufFile file;
  file.path_ = name;
  file.owned_ = keep != nullptr;
  file.kept_.push_back(std::move(keep));
  file.parts_ = {bytes};
  file.read();
  return file;
}

void GgufFile::read() {
  const std::span<const std::byte> bytes = parts_.front();
  Reader in(bytes, path_);
  if (bytes.size() < 4 || std::memcmp(bytes.data(), GGUF_MAGIC, 4) != 0)
    fail("{}: is not a GGUF file (it does not begin with \"GGUF\"); convert the model to GGUF", path_);
  in.take(4, "the header");
  const auto version = in.scalar<std::uint32_t>("the header");
  if (version == 0x02000000 || version == 0x03000000)
    fail("{}: is a big-endian GGUF file; convert the model to little endian", path_);
  if (version != 2 && version != 3)
    fail("{}: is GGUF version {}; versions 2 and 3 can be read: convert the model again", path_, version);
  const auto tensor_count = in.scalar<std::uint64_t>("the header");
  const auto key_count = in.scalar<std::uint64_t>("the header");
  // The min size of a key and of a tensor: rejects impossible counts before memory is reserved for them.
  if (key_count > in.left() / (8 + 4 + 1) || tensor_count > in.left() / (8 + 4 + 4 + 8))
    fail("{}: claims {} tensors and {} keys in {} bytes: truncated or damaged; fetch or convert the model again", path_,
         tensor_count, key_count, bytes.size());

  for (std::uint64_t i = 0; i < key_count; ++i) {
    const std::string key(in.string("a metadata key"));
    const auto read_type = [&](const char* what) {
      const auto raw = in.scalar<std::uint32_t>(what);
      if (raw >= GGUF_TYPE_COUNT)
        fail("{}: key {} has unknown type {}: damaged, or newer than this program", path_, printable(key), raw);
      return static_cast<gguf_type>(raw);
    };
    Value v;
    v.type = read_type("a metadata type");
    if (v.type == GGUF_TYPE_STRING) {
      const auto text = in.string("a metadata string");
      v.data = reinterpret_cast<const std::byte*>(text.data());
      v.length = text.size();
    } else if (v.type == GGUF_TYPE_ARRAY) {
      v.element = read_type("an array's type");
      v.count = in.scalar<std::uint64_t>("an array's length");
      if (v.element == GGUF_TYPE_STRING) {
        v.data = bytes.data() + in.at();
        for (std::uint64_t k = 0; k < v.count; ++k) in.string("an array of strings");
      } else if (const std::size_t each = scalar_bytes(v.element); each != 0) {
        if (v.count > in.left() / each)
          fail("{}: key {} claims {} elements, more than the file holds: truncated or damaged", path_, printable(key),
               v.count);
        v.data = in.take(v.count * each, "an array");
      } else {
        fail("{}: key {} is an array of arrays, which no model has: damaged", path_, printable(key));
      }
    } else {
      v.data = in.take(scalar_bytes(v.type), "a metadata value");
    }
    if (!values_.emplace(key, v).second) fail("{}: key {} appears twice: damaged", path_, printable(key));
  }

  const std::int64_t alignment = integer("general.alignment").value_or(GGUF_DEFAULT_ALIGNMENT);
  if (alignment < 8 || alignment > (1 << 20) || (alignment & (alignment - 1)) != 0)
    fail("{}: general.alignment is {}; it must be a power of two, 8 or more: damaged", path_, alignment);

  std::vector<std::uint64_t> offsets;
  tensors_.reserve(tensor_count);
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    GgufTensor t;
    t.name = in.string("a tensor's name");
    const std::string name = printable(t.name);
    if (t.name.empty() || t.name.size() >= GGML_MAX_NAME)
      fail("{}: tensor name \"{}\" has {} characters; 1 to {} are possible: damaged", path_, name, t.name.size(),
           GGML_MAX_NAME - 1);
    const auto dims = in.scalar<std::uint32_t>("a tensor's shape");
    if (dims < 1 || dims > GGML_MAX_DIMS)
      fail("{}: tensor {} has {} dimensions; 1 to {} are possible: damaged", path_, name, dims, GGML_MAX_DIMS);
    std::uint64_t elements = 1;
    for (std::uint32_t d = 0; d < dims; ++d) {
      const auto size = in.scalar<std::uint64_t>("a tensor's shape");
      if (size == 0 || size > kMaxDim || elements > kMaxDim / size)
        fail("{}: tensor {} has an impossible shape (dimension {} is {}): damaged", path_, name, d, size);
      elements *= size;
      t.ne[d] = static_cast<std::int64_t>(size);
    }
    const auto type = in.scalar<std::uint32_t>("a tensor's type");
    if (type >= GGML_TYPE_COUNT || ggml_blck_size(static_cast<ggml_type>(type)) < 1)
      fail("{}: tensor {} has unknown type {}: damaged, or newer than this program's ggml", path_, name, type);
    t.type = static_cast<ggml_type>(type);
    const std::int64_t block = ggml_blck_size(t.type);
    if (t.ne[0] % block != 0)
      fail("{}: tensor {} has rows of {}, but {} comes in blocks of {}: damaged", path_, name, t.ne[0],
           ggml_type_name(t.type), block);
    const std::uint64_t blocks = elements / static_cast<std::uint64_t>(block);
    const std::uint64_t each = ggml_type_size(t.type);
    t.bytes = blocks > bytes.size() / each ? std::numeric_limits<std::size_t>::max() : blocks * each;
    const auto offset = in.scalar<std::uint64_t>("a tensor's offset");
    if (offset % static_cast<std::uint64_t>(alignment) != 0)
      fail("{}: tensor {} lies at offset {}, not a multiple of {}: damaged", path_, name, offset, alignment);
    offsets.push_back(offset);
    if (!tensor_index_.emplace(t.name, tensors_.size()).second)
      fail("{}: tensor {} appears twice: damaged", path_, name);
    tensors_.push_back(std::move(t));
  }

  const std::uint64_t pad = static_cast<std::uint64_t>(alignment) - 1;
  const std::uint64_t start = (in.at() + pad) & ~pad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    GgufTensor& t = tensors_[i];
    const std::uint64_t room = start <= bytes.size() ? bytes.size() - start : 0;
    if (offsets[i] > room || t.bytes > room - offsets[i])
      fail("{}: tensor {} lies beyond the end of the file ({} bytes): truncated; fetch or convert the model again",
           path_, printable(t.name), bytes.size());
    t.data = bytes.data() + start + offsets[i];
  }
  refuse_overlap();
}

void GgufFile::refuse_overlap() const {
  std::vector<const GgufTensor*> by_place;
  for (const GgufTensor& t : tensors_)
    if (t.bytes > 0) by_place.push_back(&t);
  std::ranges::sort(by_place, {}, &GgufTensor::data);
  for (std::size_t i = 1; i < by_place.size(); ++i)
    if (const GgufTensor& a = *by_place[i - 1], &b = *by_place[i]; a.data + a.bytes > b.data)
      fail("{}: tensors {} and {} overlap: damaged; fetch or convert the model again", path_, printable(a.name),
           printable(b.name));
}

const GgufFile::Value* GgufFile::value(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

void GgufFile::mistyped(std::string_view key, const Value& v, const char* wanted) const {
  fail("{}: key {} is of type {}, not {}: damaged, or not made for this architecture", path_, key,
       gguf_type_name(v.type), wanted);
}

bool GgufFile::is_array(std::string_view key) const {
  const Value* v = value(key);
  return v != nullptr && v->type == GGUF_TYPE_ARRAY;
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  const auto out = load_integer(v->type, v->data);
  if (!out) mistyped(key, *v, "an integer that fits");
  return out;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  const auto out = load_number(v->type, v->data);
  if (!out) mistyped(key, *v, "a number");
  if (!std::isfinite(*out)) fail("{}: key {} is not a finite number: damaged", path_, key);
  return *out;
}

std::optional<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GGUF_TYPE_ARRAY) mistyped(key, *v, "an array of numbers");
  std::vector<double> out;
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto element = load_number(v->element, v->data + i * scalar_bytes(v->element));
    if (!element) mistyped(key, *v, "an array of numbers");
    if (!std::isfinite(*element)) fail("{}: key {} has a value that is not finite: damaged", path_, key);
    out.push_back(*element);
  }
  return out;
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GGUF_TYPE_BOOL) mistyped(key, *v, "a truth value");
  return load<std::uint8_t>(v->data) != 0;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GGUF_TYPE_STRING) mistyped(key, *v, "a text");
  return std::string(reinterpret_cast<const char*>(v->data), static_cast<std::size_t>(v->length));
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GGUF_TYPE_ARRAY) mistyped(key, *v, "an array of integers");
  std::vector<std::int64_t> out;
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const std::byte* const at = v->data + i * scalar_bytes(v->element);
    const auto element = v->element == GGUF_TYPE_BOOL ? std::optional<std::int64_t>(load<std::uint8_t>(at) != 0)
                                                      : load_integer(v->element, at);
    if (!element) mistyped(key, *v, "an array of integers");
    out.push_back(*element);
  }
  return out;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return std::nullopt;
  if (v->type != GGUF_TYPE_ARRAY || v->element != GGUF_TYPE_STRING) mistyped(key, *v, "an array of texts");
  std::vector<std::string_view> out;
  out.reserve(static_cast<std::size_t>(v->count));  // read() checked every string
  const std::byte* at = v->data;
  for (std::uint64_t i = 0; i < v->count; ++i) {
    const auto length = load<std::uint64_t>(at);
    out.emplace_back(reinterpret_cast<const char*>(at + sizeof length), static_cast<std::size_t>(length));
    at += sizeof length + length;
  }
  return out;
}

std::vector<std::string_view> GgufFile::keys() const {
  std::vector<std::string_view> out;
  for (const auto& [key, value] : values_) out.push_back(key);
  return out;
}

std::size_t GgufFile::array_size(std::string_view key) const {
  const Value* v = value(key);
  if (v == nullptr) return 0;
  if (v->type != GGUF_TYPE_ARRAY) mistyped(key, *v, "an array");
  return static_cast<std::size_t>(v->count);
}

const GgufTensor* GgufFile::find(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

void GgufFile::discard_pages(const GgufTensor& tensor) const {
  if (!owned_ && tensor.part >= 0) return;
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(tensor.data) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(tensor.data + tensor.bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace palimpsest
