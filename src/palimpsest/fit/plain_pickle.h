// The values of a pickle, without running it. A pickle is a program for Python's unpickler: it may call any function of
// any module. Here its opcodes build plain values; a global is its name, and a call is kept as the name and its
// arguments. Nothing is looked up, imported or called.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace palimpsest {

struct PickleValue {
  enum class Kind {
    kNone,
    kNumber,  // also booleans
    kText,    // also bytes
    kGlobal,  // text: "module name"
    kList,    // also tuples and sets
    kDict,    // items: keys and values in turn
    kCall,    // items: the callee, the list of its arguments
    kStored   // items: the id of an object that lies outside the pickle: a storage of a tensor
  };
  Kind kind = Kind::kNone;
  double number = 0;
  std::string text = {};
  std::vector<int> items = {};  // indices of PlainPickle::values
};

struct PlainPickle {
  std::vector<PickleValue> values;  // a value may be an item of several, or, in a damaged file, of itself
  int root = 0;

  const PickleValue& at(int index) const { return values[static_cast<std::size_t>(index)]; }
  // The value of a text key; -1: none, or `dict` is no dictionary. Of equal keys the last.
  int find(int dict, std::string_view key) const;
};

// Protocols 0 to 5, as far as torch.save() and pickle.dump() use them for numbers, texts, lists, dictionaries and
// tensors. Throws Error: `name` is damaged, or has an opcode of another kind.
PlainPickle read_pickle(std::span<const std::byte> bytes, const std::string& name);

}  // namespace palimpsest
