// How the memory of dropped tokens is used again. cache/slots.h describes each mechanism; all that code outside the
// slot table needs to know of them is this table.
#pragma once

#include <array>
#include <cstddef>

namespace palimpsest {

enum class Mechanism { kInPlace, kShift, kGather, kBlock, kAppend, kMerge, kMatch };

struct MechanismTraits {
  const char* name;          // in options
  bool moves_rows = false;   // a drop moves the survivors down: slots are in the order read, and none is free between
  bool copies_rows = false;  // ... all survivors, into new pages
  bool whole_pages = false;  // evicts all tokens of a page
  bool reuses_slots = true;  // the next tokens take the dropped tokens' slots
  bool merges = false;       // a dropped token may be merged into a kept one
  bool fits = false;         // a drop changes the kept tokens' values, and biases of their slots

  bool operator==(const MechanismTraits&) const = default;
  bool waits_for_page() const {
    return moves_rows || whole_pages;
  }                                                     // drops outside windows, a page of tokens at a time
  bool changes_kept() const { return merges || fits; }  // before its victims are dropped
};

inline constexpr std::array<MechanismTraits, 7> kMechanisms = {{
    {.name = "in-place"},
    {.name = "shift", .moves_rows = true},
    {.name = "gather", .moves_rows = true, .copies_rows = true},
    {.name = "block", .whole_pages = true},
    {.name = "append", .reuses_slots = false},
    {.name = "merge", .merges = true},
    {.name = "match", .fits = true},
}};  // in the order of Mechanism, which snapshots store
static_assert(kMechanisms.size() == static_cast<std::size_t>(Mechanism::kMatch) + 1);

constexpr const MechanismTraits& traits(Mechanism mechanism) {
  return kMechanisms[static_cast<std::size_t>(mechanism)];
}

}  // namespace palimpsest
