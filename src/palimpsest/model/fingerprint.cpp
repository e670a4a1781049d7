#include "palimpsest/model/fingerprint.h"

#include <algorithm>

#include "palimpsest/core/checksum.h"
#include "palimpsest/model/weights.h"

namespace palimpsest {

std::uint64_t fingerprint(const Model& model) {
  const GgufFile& file = model.weights().file;
  Checksum sum;
  for (const GgufTensor& t : file.tensors()) {
    sum.add(std::as_bytes(std::span(t.name)));
    sum.add(std::as_bytes(std::span(t.ne)));
    sum.add({t.data, std::min<std::size_t>(t.bytes, 64)});
  }
  return sum.value();
}

}  // namespace palimpsest
