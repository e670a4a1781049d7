#include "palimpsest/model/families/families.h"

#include "palimpsest/core/error.h"
#include "palimpsest/core/gguf_file.h"

namespace palimpsest {

const Family& find_family(std::string_view architecture) {
  for (const Family* family : kFamilies)
    if (family->architecture == architecture) return *family;
  fail("architecture \"{}\" is not supported; these are: {}", printable(architecture), supported_architectures());
}

std::string supported_architectures() {
  std::string out;
  for (const Family* family : kFamilies) out += (out.empty() ? "" : ", ") + std::string(family->architecture);
  return out;
}

std::span<const Family* const> families() {
  return kFamilies;
}

}  // namespace palimpsest
