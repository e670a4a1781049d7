// One file of a zip archive (a Python wheel). Of the format (APPNOTE.TXT): one disk, below 4 GiB, stored or deflated.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace palimpsest {

// Hands the member's bytes to `sink`, in pieces; returns their number. Throws Error: no such member, damaged archive,
// and whatever `sink` throws.
std::uint64_t unzip_member(const std::string& archive, const std::string& member,
                           const std::function<void(std::string_view)>& sink);

bool has_unzip();  // whether this build has zlib

}  // namespace palimpsest
