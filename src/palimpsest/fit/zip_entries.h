// The entries of a zip archive that are not compressed, as torch.save() writes them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace palimpsest {

// The bytes of each file of the archive, in `archive`. Throws Error for what is damaged, compressed, encrypted, or has
// more than 4 GiB. `name`: of the archive, in errors.
std::map<std::string, std::span<const std::byte>> zip_entries(std::span<const std::byte> archive,
                                                              const std::string& name);

}  // namespace palimpsest
