// Models split over several files by llama-gguf-split: NAME-00001-of-00003.gguf has all metadata, and each part some of
// the tensors.
#include <fmt/format.h>

#include <utility>

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

namespace {

std::string part_suffix(std::int64_t number, std::int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", number, count);
}

}  // namespace

GgufFile GgufFile::open(const std::string& path) {
  GgufFile file = open_one(path);
  const std::int64_t count = file.integer("split.count").value_or(1), number = file.integer("split.no").value_or(0);
  if (count == 1) return file;
  if (count < 1 || count > 99999 || number < 0 || number >= count)
    fail("{}: claims to be part {} of {}: damaged", path, number, count);
  const std::string suffix = part_suffix(number + 1, count);
  if (!path.ends_with(suffix))
    fail("{}: is part {} of {} of a split model, and its name does not end with {}, so the others cannot be found",
         path, number + 1, count, suffix);
  const std::string name = path.substr(0, path.size() - suffix.size());
  if (number != 0)
    fail("{}: is part {} of {} of a split model; give the first, {}{}", path, number + 1, count, name,
         part_suffix(1, count));
  for (std::int64_t i = 1; i < count; ++i) {
    const std::string other = name + part_suffix(i + 1, count);
    GgufFile part = [&] {
      try {
        return open_one(other);
      } catch (const Error& e) {
        fail("{} (part {} of {} of this model)", e.what(), i + 1, count);
      }
    }();
    if (part.integer("split.no") != i || part.integer("split.count") != count)
      fail("{}: is not part {} of {} of {}; fetch the parts again", other, i + 1, count, path);
    file.add_part(std::move(part));
  }
  const auto expected = file.integer("split.tensors.count");
  if (expected && *expected != static_cast<std::int64_t>(file.tensors_.size()))
    fail("{}: its parts have {} tensors; {} are expected: fetch the parts again", path, file.tensors_.size(),
         *expected);
  return file;
}

void GgufFile::add_part(GgufFile part) {
  for (GgufTensor& t : part.tensors_) {
    t.part = static_cast<int>(parts_.size());
    if (!tensor_index_.emplace(t.name, tensors_.size()).second)
      fail("{}: tensor {} is also in another part: damaged", part.path_, printable(t.name));
    tensors_.push_back(std::move(t));
  }
  parts_.push_back(part.parts_.front());
  files_.push_back(std::move(part.files_.front()));
}

void GgufFile::replace(std::string_view name, ggml_type type, std::shared_ptr<const std::byte> data,
                       std::size_t bytes) {
  GgufTensor& t = tensors_[tensor_index_.find(name)->second];
  t.type = type;
  t.data = data.get();
  t.bytes = bytes;
  t.part = -1;
  kept_.push_back(std::move(data));
}

}  // namespace palimpsest
